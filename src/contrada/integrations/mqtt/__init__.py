"""Topics of MQTT 5, in and out: `messages` says what becomes of what, `session` speaks with the
MQTT broker, `bridge` carries.
"""
