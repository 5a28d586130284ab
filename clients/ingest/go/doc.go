// Package ingest has clients of Tidewire's native ingest protocol, version 1: a producer whose messages are stored once, and a
// reader. It needs nothing but the standard library.
//
// A [Producer] with a name stores nothing twice, whatever breaks: the server keeps the highest id of each producer and stream.
// A connection that is lost is made again, and what the server does not have is sent again. A program that starts again goes
// on behind [Producer.Acknowledged].
//
// A [Reader] goes on behind the last record that it received. With a cursor the server remembers how far it is. Groups of
// readers are not part of the native protocol yet.
//
// Addresses are HOST:PORT, unix:/PATH, or unix:@NAME of the abstract namespace.
package ingest
