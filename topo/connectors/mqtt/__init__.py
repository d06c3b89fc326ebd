"""Connectors to MQTT brokers: `MqttSpout` and `MqttSink`, both with QoS 1."""
