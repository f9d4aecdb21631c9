"""Event patterns and filter policies in templates of CloudFormation and SAM."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from contrada.integrations.dialects import eventbridge
from contrada.integrations.dialects.eventbridge import eventbridge_refusals
from contrada.model.rule import RefusedRule, Rule

TEMPLATE = """
AWSTemplateFormatVersion: '2010-09-09'
Parameters: {Bucket: {Type: String}}
Resources:
  Logs:
    Type: AWS::Logs::MetricFilter
    Properties: {Pattern: no event pattern}
  Stopped:
    Type: AWS::Events::Rule
    Properties:
      EventPattern:
        source: [aws.ec2]
        detail: {state: [stopped, {prefix: term}]}
      Targets: [{Arn: !GetAtt Worker.Arn, Id: worker}]
  Bound:
    Type: AWS::Events::Rule
    Properties:
      EventPattern: {detail: {bucket: [!Ref Bucket]}}
  Worker:
    Type: AWS::Serverless::Function
    Properties:
      Runtime: python3.12
      Events:
        Placed: {Type: EventBridgeRule, Properties: {Pattern: {detail-type: [order]}}}
        Note: {Type: SNS, Properties: {Topic: !Ref Topic, FilterPolicy: {kind: [a]}}}
        Queue:
          Type: SQS
          Properties:
            FilterCriteria: {Filters: [{Pattern: '{"body": {"n": [{"numeric": [">", 5]}]}}'}]}
  Big:
    Type: AWS::SNS::Subscription
    Properties: {FilterPolicy: {price: [{numeric: ['>=', 100]}]}}
"""


def test_patterns_of_a_template_are_read() -> None:
    """Patterns would have to be copied out of templates, where nearly all are written."""
    found = {rule.name: rule for rule in eventbridge.read_rules(TEMPLATE)}
    refused = found.pop("Bound")
    assert isinstance(refused, RefusedRule)
    assert refused.reason == eventbridge_refusals.FUNCTION
    events: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "Stopped": (
            {"source": "aws.ec2", "detail": {"state": "terminated"}},
            {"source": "aws.ec2", "detail": {"state": "running"}},
        ),
        "Worker.Placed": ({"detail-type": "order"}, {"detail-type": "other"}),
        "Worker.Note": ({"kind": "a"}, {"kind": "b"}),
        "Worker.Queue": ({"body": {"n": 6}}, {"body": {"n": 5}}),
        "Big": ({"price": 100}, {"price": 99.5}),
    }
    assert found.keys() == events.keys()
    for name, (matching, other) in events.items():
        rule = found[name]
        assert isinstance(rule, Rule)
        assert eventbridge.matches(rule, matching)
        assert not eventbridge.matches(rule, other)


def test_templates_in_json_are_read() -> None:
    """Templates that a program has written would be patterns of strange fields."""
    pattern = {"detail": {"a": [{"Fn::Sub": "x"}]}}
    resources = {
        "A": {"Type": "AWS::Events::Rule", "Properties": {"EventPattern": {"a": ["x"]}}},
        "B": {"Type": "AWS::Events::Rule", "Properties": {"EventPattern": pattern}},
        "D": {"Properties": {"EventPattern": {"Fn::Transform": {"Name": "x"}}}},
        "E": {"Properties": {"EventPattern": {"Ref": ["x"]}}},
        "C": {"Type": "AWS::Events::Rule", "Properties": {"ScheduleExpression": "rate(1 day)"}},
    }
    first, second, transformed, named_ref = eventbridge.read_rules(
        json.dumps({"Resources": resources})
    )
    assert isinstance(first, Rule)
    assert (first.name, str(first.filters)) == ("A", 'a = "x"')
    assert isinstance(second, RefusedRule)
    assert isinstance(transformed, RefusedRule)
    assert isinstance(named_ref, Rule)


@pytest.mark.parametrize(
    "text",
    [
        '{"SubscriptionArn": "arn:1", "FilterPolicy": "{\\"a\\": [\\"x\\"]}"}',
        '{"Attributes": {"SubscriptionArn": "arn:1", "FilterPolicy": {"a": ["x"]}}}',
    ],
)
def test_filter_policies_of_sns_are_read(text: str) -> None:
    """Subscriptions of SNS would have to be written again."""
    (found,) = eventbridge.read_rules(text)
    assert isinstance(found, Rule)
    assert (found.name, str(found.filters)) == ("arn:1", 'a = "x"')
    (plain,) = eventbridge.read_rules('{"FilterPolicy": {"a": ["x"]}}')
    assert isinstance(plain, Rule)
    assert str(plain.filters) == 'FilterPolicy.a = "x"'


def test_a_pattern_in_yaml_is_read() -> None:
    """A pattern as guides show it would be no JSON, or a second one be left out in silence."""
    (found,) = eventbridge.read_rules("source: [aws.ec2]\n")
    assert isinstance(found, Rule)
    for text in ("source: !!python/name:os.system x\n", "source: [a]\n---\nsource: [b]\n"):
        (refused,) = eventbridge.read_rules(text)
        assert isinstance(refused, RefusedRule)


PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
KEYS = st.sampled_from(["Resources", "Properties", "EventPattern", "Events", "Ref", "Pattern", "a"])


@given(
    st.recursive(
        PLAIN,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
        max_leaves=12,
    )
)
def test_any_template_is_read_or_refused(resources: Any) -> None:
    """A hostile template would end the reading of all rules."""
    template = {"Resources": {"A": {"Properties": resources}}}
    for text in (json.dumps(template), yaml.safe_dump(template)):
        for each in eventbridge.read_rules(text):
            assert isinstance(each, Rule) or each.reason
