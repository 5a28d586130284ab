"""The native protocol of tidewire, from docs/formats/protocol.md alone: nothing but the standard library."""
