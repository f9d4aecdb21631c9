"""The bridge to MQTT 5: `mqtt_bridge`, its `mqtt_session`, translation in `mqtt_messages`."""
