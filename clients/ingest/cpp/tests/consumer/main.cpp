#include <iostream>

#include <tidewire/ingest.hpp>

int main() {
    tidewire::ingest::Connecting once;
    once.retry.attempts = 1;
    try {
        // Nothing listens at port 1 of this host.
        tidewire::ingest::Producer producer("127.0.0.1:1", {}, once);
    } catch (const tidewire::ingest::Unreachable& failure) {
        std::cout << failure.what() << '\n';
        return 0;
    }
    return 1;
}
