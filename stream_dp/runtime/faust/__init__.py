"""The Faust adapter: application, transports, tables, the host of the pure parts, timers, the embedded log."""
