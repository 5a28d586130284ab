// Stores each line of a file exactly once, whatever is killed meanwhile: run it again until it ends with status 0.
//
//     store_lines --to HOST:PORT --producer NAME [--stream NAME] FILE
//
// The id of a line is the offset of its end in FILE. So the server's mark says where to go on, and nothing has to be remembered
// here. A last line without its line break is left for the next run. FILE may grow, and must not change otherwise. With - instead
// of FILE, the lines of standard input are stored, numbered from the server's mark on.
#include <fstream>
#include <iostream>
#include <map>

#include <tidewire/ingest.hpp>

namespace ingest = tidewire::ingest;

int main(int count, char** words) {
    std::map<std::string, std::string> given{{"--to", "127.0.0.1:7400"}, {"--level", "durable"}};
    std::string path;
    bool shows = false;
    for (int at = 1; at < count; ++at) {
        std::string word = words[at];
        if (word == "--progress") shows = true;
        else if (word.rfind("--", 0) == 0 && at + 1 < count) given[word] = words[++at];
        else path = word;
    }
    if (path.empty() || given["--producer"].empty()) {
        std::cerr << "store_lines --to HOST:PORT --producer NAME [--stream NAME] [--token SECRET] [--tls-ca FILE] [--level LEVEL] "
                     "[--progress] FILE\n";
        return 2;
    }
    auto show = [&](const char* what, std::uint64_t id) {
        if (shows) std::cout << what << ' ' << id << std::endl;
    };
    try {
        ingest::ProducerSettings settings;
        settings.name = given["--producer"];
        settings.stream = given["--stream"];
        settings.token = given["--token"];
        settings.level = given["--level"] == "received" ? ingest::Level::received
                         : given["--level"] == "replicated" ? ingest::Level::replicated : ingest::Level::durable;
        settings.sparse = path != "-";
        ingest::Connecting how;
        how.tls.on = !given["--tls-ca"].empty();
        how.tls.ca_file = given["--tls-ca"];
        how.log = [](ingest::Severity severity, const std::string& what) {
            if (severity == ingest::Severity::warning) std::cerr << "warning: " << what << '\n';
        };
        ingest::Producer producer(given["--to"], settings, how);
        auto offset = producer.acknowledged().value_or(0), shown = offset;
        show("mark", offset);

        std::ifstream file;
        if (path != "-") {
            file.open(path, std::ios::binary);
            file.seekg(static_cast<std::streamoff>(offset));
            if (!file) throw std::runtime_error("cannot read " + path);
        }
        std::istream& lines = path == "-" ? std::cin : file;
        std::string line;
        while (std::getline(lines, line) && !lines.eof()) {  // What has no line break is not whole.
            offset += line.size() + 1;
            if (path == "-") producer.send(line);
            else producer.send_as(offset, line);
            if (shows && producer.acknowledged().value_or(0) != shown) show("acknowledged", shown = *producer.acknowledged());
        }
        producer.close();
        show("acknowledged", producer.acknowledged().value_or(0));
    } catch (const std::exception& failure) {
        std::cerr << "store_lines: " << given["--to"] << ": " << failure.what() << '\n';
        return 1;
    }
}
