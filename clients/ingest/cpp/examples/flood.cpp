// Sends batches of 100 lines of 100 bytes as fast as they are acknowledged, and prints messages a second.
//
//     flood --to HOST:PORT --producer NAME [--stream NAME] [--level LEVEL] --count N
#include <iostream>
#include <map>

#include <tidewire/ingest.hpp>

namespace ingest = tidewire::ingest;

int main(int count, char** words) {
    std::map<std::string, std::string> given{{"--to", "127.0.0.1:7400"}, {"--count", "1000000"}};
    for (int at = 1; at + 1 < count; at += 2) given[words[at]] = words[at + 1];
    try {
        ingest::ProducerSettings settings;
        settings.name = given["--producer"];
        settings.stream = given["--stream"];
        if (given["--level"] == "received") settings.level = ingest::Level::received;
        auto messages = std::stoul(given["--count"]);
        std::vector<std::string> batch(100, std::string(100, 'x'));
        auto began = ingest::Clock::now();
        ingest::Producer producer(given["--to"], settings);
        for (std::size_t sent = 0; sent < messages; sent += batch.size()) producer.send_many(batch);
        producer.close();
        std::chrono::duration<double> took = ingest::Clock::now() - began;
        std::cout << static_cast<std::uint64_t>(static_cast<double>(messages) / took.count()) << '\n';
    } catch (const std::exception& failure) {
        std::cerr << "flood: " << failure.what() << '\n';
        return 1;
    }
}
