// Clients of Tidewire's native ingest protocol, version 1: a producer whose messages are stored once, and a reader. C++17 and
// POSIX; TLS by OpenSSL where TIDEWIRE_INGEST_TLS is defined as 1, which the CMake package does where it was found.
#pragma once

#include "ingest/producer.hpp"
#include "ingest/reader.hpp"
