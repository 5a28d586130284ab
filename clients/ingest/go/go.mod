module github.com/tidewire/tidewire/clients/ingest/go

go 1.24
