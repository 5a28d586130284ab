// Prints the messages of a stream, a line each.
//
//     read_lines --to HOST:PORT [--stream NAME] [--cursor NAME] [--follow] [--poll]
//
// With a cursor the server remembers how far this reader is: each run prints what came since. What was printed and not yet
// committed when the reader was killed is printed again. With --poll it waits by itself, at the reader's descriptor.
#include <iostream>
#include <map>

#include <tidewire/ingest.hpp>

namespace ingest = tidewire::ingest;

// As a program does that waits for other things as well.
std::optional<ingest::Record> polled(ingest::Reader& reader) {
    for (;;) {
        if (auto record = reader.try_read()) return record;
        if (reader.is_over()) return std::nullopt;
        pollfd waits{reader.descriptor(), reader.events(), 0};
        poll(&waits, waits.fd < 0 ? 0 : 1, reader.timeout());
    }
}

int main(int count, char** words) {
    std::map<std::string, std::string> given{{"--to", "127.0.0.1:7400"}};
    std::map<std::string, bool> set{{"--follow", false}, {"--positions", false}, {"--poll", false}};
    for (int at = 1; at < count; ++at) {
        std::string word = words[at];
        if (set.count(word)) set[word] = true;
        else if (at + 1 < count) given[word] = words[++at];
    }
    try {
        ingest::ReaderSettings settings;
        settings.stream = given["--stream"];
        settings.cursor = given["--cursor"];
        settings.token = given["--token"];
        settings.follow = set["--follow"];
        ingest::Connecting how;
        how.tls.on = !given["--tls-ca"].empty();
        how.tls.ca_file = given["--tls-ca"];
        how.log = [](ingest::Severity severity, const std::string& what) {
            if (severity == ingest::Severity::warning) std::cerr << "warning: " << what << '\n';
        };
        auto reader = set["--poll"] ? ingest::Reader::begin(given["--to"], settings, how) : ingest::Reader(given["--to"], settings, how);
        std::uint64_t seen = 0;
        while (auto record = set["--poll"] ? polled(reader) : reader.read()) {
            if (set["--positions"]) std::cout << record->position << ' ';
            std::cout << record->payload << '\n';
            auto next = record->position + 1;
            if (++seen % 100 == 0 || next >= reader.welcome().next) {
                std::cout.flush();
                if (!settings.cursor.empty()) reader.commit(next);
            }
        }
        std::cout.flush();
        reader.close();
    } catch (const std::exception& failure) {
        std::cout.flush();
        std::cerr << "read_lines: " << given["--to"] << ": " << failure.what() << '\n';
        return 1;
    }
}
