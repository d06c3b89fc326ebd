"""Connectors to HTTP: requests in (`WebhookSpout`) and out (`HttpSink`), events of a server in (`SseSpout`, `WebSocketSpout`)."""
