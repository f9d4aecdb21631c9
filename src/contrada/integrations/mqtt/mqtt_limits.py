"""`MqttLimits`: the bounds and time-outs of a bridge and its session with an MQTT broker."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttLimits:
    """Limits of a `MqttBridge` and its `MqttSession`."""

    mqtt_batch_max: int = 256
    """MQTT messages that are published in one batch. Beyond it: the rest is in the next batch."""
    mqtt_in_flight_max: int = 64
    """Messages without an acknowledgement of the MQTT broker. Beyond it: the bridge reads no
    more."""
    mqtt_unacknowledged_max: int = 64
    """Unacknowledged received messages of QoS 1 (Receive Maximum). Beyond it: the MQTT broker
    waits."""
    mqtt_queued_max: int = 4_096
    """Received messages in the queue of a session, with room for `mqtt_unacknowledged_max` of QoS
    1. Beyond it: one of QoS 0 is dropped, counted; one of QoS 1 is not acknowledged."""
    mqtt_queued_bytes_max: int = 128 * 2**20
    """Bytes of these messages, half of them for QoS 1. Beyond it: as for `mqtt_queued_max`."""
    mqtt_message_bytes_max: int = 2**20
    """Bytes of a received message. Beyond it: the MQTT broker does not send it, as MQTT 5
    requires."""
    mqtt_away_s_max: int = 86_400
    """Seconds for which the MQTT broker keeps a session. Beyond it: messages are lost."""
    mqtt_wait_s: float = 10.0
    """Seconds for opening and closing a session. Beyond it: opening fails; closing cuts."""
    mqtt_reconnect_s_max: int = 30
    """Seconds between attempts to reconnect, which grow. Beyond it: they grow no more."""
