module tidewire.example/peers/ack

go 1.24
