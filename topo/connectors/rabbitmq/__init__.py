"""Queues and exchanges of RabbitMQ as a source and as a target."""
