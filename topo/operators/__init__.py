"""The operator core: mailbox, timers, watermarks, keyed state, windows and asynchronous calls as pure, clock-driven parts."""
