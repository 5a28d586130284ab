"""The native protocol of tidewire, from docs/protocol.md alone: nothing but the standard library."""
