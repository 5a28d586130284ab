module tidewire.example/peers/echo

go 1.24
