// Against a real server: TIDEWIRE names the program. Skipped without it.
#include <signal.h>
#include <sys/wait.h>

#include <fstream>
#include <thread>

#include <tidewire/ingest.hpp>

#include "check.hpp"

using namespace tidewire::ingest;
using namespace std::chrono_literals;

std::string place;  // a folder for what is needed

class Server {
public:
    explicit Server(const std::string& data, const std::string& listen = "127.0.0.1:0", std::vector<std::string> options = {}) {
        std::vector<std::string> words{std::getenv("TIDEWIRE"), "serve", "ingest", "--listen", "ingest=" + listen, "--data", place + "/" + data,
                                       "--admin", "off", "--control", "off", "--workers", "1"};
        words.insert(words.end(), options.begin(), options.end());
        int out[2];
        if (pipe(out) != 0) throw std::runtime_error("no pipe");
        process_ = fork();
        if (process_ == 0) {
            dup2(out[1], 1);
            std::vector<char*> raw;
            for (auto& word : words) raw.push_back(word.data());
            raw.push_back(nullptr);
            execv(raw[0], raw.data());
            _exit(127);
        }
        ::close(out[1]);
        std::string line;
        for (char byte; read(out[0], &byte, 1) == 1 && byte != '\n';) line += byte;
        out_ = out[0];
        auto at = line.find(" addr=");
        if (at == std::string::npos) throw std::runtime_error("the server does not start: " + line);
        at += 6;
        addr = line.substr(at, line.find(' ', at) - at);
    }
    ~Server() { kill(); }

    void kill() {
        if (process_ > 0) {
            ::kill(process_, SIGKILL);
            waitpid(process_, nullptr, 0);
            ::close(out_);
        }
        process_ = -1;
    }

    std::string addr;

private:
    pid_t process_ = -1;
    int out_ = -1;
};

ProducerSettings named(const std::string& name) {
    ProducerSettings settings;
    settings.name = name;
    return settings;
}

std::vector<std::string> payloads(const std::string& addr, const ReaderSettings& settings = {}, const Connecting& how = {}) {
    Reader reader(addr, settings, how);
    std::vector<std::string> found;
    while (auto record = reader.read(60s)) found.emplace_back(record->payload);
    if (!settings.cursor.empty()) reader.commit(reader.welcome().next);
    reader.close();
    return found;
}

void what_is_sent_is_read() {
    Server server("read");
    Producer producer(server.addr, named("p"));
    CHECK(producer.send("one") == 1);
    std::vector<std::string> many{"two", "", "four"};
    CHECK(producer.send_many(many) == 2);
    CHECK(producer.try_send("five") == 5);
    producer.wait(3, 60s);
    producer.flush(60s);
    CHECK(producer.acknowledged() == 5 && producer.unacknowledged() == 0 && producer.welcome().level == Level::durable);
    THROWS(std::invalid_argument, producer.send_many(std::vector<std::string>()));
    producer.close();
    THROWS(Closed, producer.send("late"));
    CHECK((payloads(server.addr) == std::vector<std::string>{"one", "two", "", "four", "five"}));
    ReaderSettings settings;
    settings.begin = Begin::position(3);
    CHECK((payloads(server.addr, settings) == std::vector<std::string>{"four", "five"}));
    settings.begin = Begin::tail();
    CHECK(payloads(server.addr, settings).empty());
    settings.begin = Begin::position(6);
    THROWS(Refused, payloads(server.addr, settings));
}

void a_producer_goes_on_behind_its_mark() {
    Server server("mark");
    auto settings = named("p");
    settings.sparse = true;
    for (std::uint64_t run = 0; run < 3; ++run) {
        Producer producer(server.addr, settings);
        CHECK(producer.acknowledged().value_or(0) == 10 * run);
        producer.send_as(10 * run + 10, std::to_string(run));
        THROWS(WrongId, producer.send_as(10 * run + 10, ""));
        producer.close(60s);
    }
    CHECK((payloads(server.addr) == std::vector<std::string>{"0", "1", "2"}));
}

void a_newer_producer_fences_the_older() {
    Server server("fence");
    Producer older(server.addr, named("p"));
    older.send("older");
    older.flush(60s);
    Producer newer(server.addr, named("p"));
    CHECK(newer.send("newer") == 2);
    newer.flush(60s);
    try {
        older.send("late");
        older.flush(60s);
        CHECK(false);
    } catch (const Refused& refused) {
        CHECK(refused.reason == Reason::fenced);
    }
    THROWS(Refused, older.send("later"));
}

void a_small_buffer_waits_for_room() {
    Server server("room");
    auto settings = named("p");
    settings.buffer_messages = 5;
    settings.window_messages = 3;
    Producer producer(server.addr, settings);
    for (int n = 0; n < 100; ++n) producer.send(std::to_string(n));
    producer.close(60s);
    CHECK(payloads(server.addr).size() == 100);
}

void a_level_that_is_not_granted() {
    Server server("level");
    auto settings = named("p");
    settings.level = Level::replicated;
    THROWS(LevelNotGranted, Producer(server.addr, settings));
    settings.accept_lower = true;
    CHECK(Producer(server.addr, settings).welcome().level == Level::durable);
}

void a_cursor_is_kept() {
    Server server("cursor");
    Producer producer(server.addr, named("p"));
    producer.send_many(std::vector<std::string>{"0", "1", "2"});
    producer.close(60s);
    ReaderSettings settings;
    settings.cursor = "c";
    Reader reader(server.addr, settings);
    auto record = reader.read(60s);
    CHECK(record && record->payload == "0" && record->producer == "p" && record->id == 1);
    reader.commit(1);
    reader.close();
    CHECK((payloads(server.addr, settings) == std::vector<std::string>{"1", "2"}));
    CHECK(payloads(server.addr, settings).empty());
}

void a_follower_waits() {
    Server server("follow");
    ReaderSettings settings;
    settings.follow = true;
    Reader reader(server.addr, settings);
    THROWS(TimedOut, reader.read(20ms));
    Producer producer(server.addr);
    producer.send("now");
    auto record = reader.read(60s);
    CHECK(record && record->payload == "now");
}

void large_payloads_and_little_credit() {
    Server server("large");
    auto settings = named("p");
    settings.window_bytes = 1000;
    std::vector<std::size_t> sizes{0, 1, 100'000, 1'000'000, 5}, found;
    Producer producer(server.addr, settings);
    for (auto size : sizes) producer.send(std::string(size, 'x'));
    producer.close(60s);
    ReaderSettings reading;
    reading.credit = 1;
    for (auto& payload : payloads(server.addr, reading)) found.push_back(payload.size());
    CHECK(found == sizes);
}

void a_server_that_stops_and_starts() {
    Server server("again");
    Connecting how;
    how.retry.first = 10ms;
    Producer producer(server.addr, named("p"), how);
    producer.send("before");
    producer.flush(60s);
    server.kill();
    producer.send("while it is away");
    THROWS(TimedOut, producer.flush(50ms));
    Server again("again", server.addr);
    producer.send("after");
    producer.close(60s);
    CHECK((payloads(server.addr) == std::vector<std::string>{"before", "while it is away", "after"}));
}

void a_program_that_polls() {
    Server server("poll");
    auto producer = Producer::begin(server.addr, named("p"));
    auto reader = [&] {
        ReaderSettings settings;
        settings.follow = settings.wait = true;
        settings.stream = "default";
        return Reader::begin(server.addr, settings);
    }();
    int sent = 0, seen = 0;
    auto end = Clock::now() + 60s;
    while (seen < 1000 && Clock::now() < end) {
        pollfd waits[]{{producer.descriptor(), producer.events(), 0}, {reader.descriptor(), reader.events(), 0}};
        int timeout = producer.timeout(), other = reader.timeout();
        timeout = timeout < 0 ? other : other < 0 ? timeout : std::min(timeout, other);
        poll(waits, 2, sent < 1000 && producer.is_welcomed() ? 0 : timeout);
        producer.drive();
        while (sent < 1000 && producer.try_send(std::to_string(sent))) ++sent;
        while (auto record = reader.try_read()) CHECK(record->payload == std::to_string(seen++));
    }
    CHECK(seen == 1000);
}

void nothing_listens() {
    Server server("nothing");
    server.kill();
    THROWS(Unreachable, Producer(server.addr));
    THROWS(Unreachable, Reader(server.addr));
    Connecting how;
    how.retry.at_first = true;
    how.retry.attempts = 2;
    how.retry.first = 1ms;
    THROWS(GaveUp, Producer(server.addr, {}, how));
}

void round_trip(const std::string& addr, const std::string& token = "", const Connecting& how = {}) {
    auto settings = named("p");
    settings.token = token;
    Producer producer(addr, settings, how);
    producer.send("hello");
    producer.close(60s);
    ReaderSettings reading;
    reading.cursor = "c";
    reading.token = token;
    CHECK((payloads(addr, reading, how) == std::vector<std::string>{"hello"}));
    CHECK(payloads(addr, reading, how).empty());
}

void unix_sockets() {
    auto path = "unix:" + place + "/socket";
    Server server("unix", path);
    round_trip(path);
}

void tokens() {
    std::string command = "printf '[[ingest-tokens]]\\nname = \"t\"\\nrights = [\"write\", \"read\"]\\nsha256 = \"%s\"\\n' \"$(printf %s 'a secret' | "
                          "sha256sum | cut -d' ' -f1)\" > " + place + "/tidewire.toml";
    CHECK(std::system(command.c_str()) == 0);
    Server server("tokens", "127.0.0.1:0", {"--config", place + "/tidewire.toml"});
    for (auto* token : {"", "another"}) {
        auto settings = named("p");
        settings.token = token;
        try {
            Producer(server.addr, settings);
            CHECK(false);
        } catch (const Refused& refused) {
            CHECK(refused.reason == Reason::unauthorised);
        }
    }
    round_trip(server.addr, "a secret");
}

void tls() {
    Connecting how;
    how.tls.on = true;
    how.tls.ca_file = place + "/cert.pem";
#if TIDEWIRE_INGEST_TLS
    std::string command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost -addext "
                          "subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout " + place + "/key.pem -out " + place + "/cert.pem 2> /dev/null";
    if (std::system(command.c_str()) != 0) {
        std::puts("skipped: no openssl to make certificates with");
        return;
    }
    Server server("tls", "127.0.0.1:0", {"--tls-cert", place + "/cert.pem", "--tls-key", place + "/key.pem"});
    round_trip(server.addr, "", how);
    // Large ones too, both ways.
    auto settings = named("q");
    settings.stream = "large";
    Producer producer(server.addr, settings, how);
    std::vector<std::string> many(50, std::string(100'000, 'x'));
    producer.send_many(many);
    producer.close(60s);
    ReaderSettings reading;
    reading.stream = "large";
    CHECK(payloads(server.addr, reading, how) == many);
    // A certificate that is not trusted, or for another, is final.
    how.retry.at_first = true;
    auto wrong = how;
    wrong.tls.server_name = "other.example";
    THROWS(Unreachable, Producer(server.addr, {}, wrong));
    wrong = how;
    wrong.tls.ca_file.clear();
    THROWS(Unreachable, Producer(server.addr, {}, wrong));
    THROWS(Unreachable, Producer(server.addr));
#else
    THROWS(Unreachable, Producer("127.0.0.1:1", {}, how));
#endif
}

// Carries connections to a server, and cuts each after some bytes, in the middle of whatever it is.
class Cuts {
public:
    explicit Cuts(const std::string& to) : to_(to) {
        listener_ = socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof at;
        if (bind(listener_, reinterpret_cast<sockaddr*>(&at), size) != 0 || listen(listener_, 16) != 0) throw std::runtime_error("no listener");
        getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size);
        addr = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
        thread_ = std::thread([this] { carry(); });
    }
    ~Cuts() {
        shutdown(listener_, SHUT_RDWR);
        thread_.join();
        ::close(listener_);
    }
    std::string addr;

private:
    void carry() {
        long budget = 3000;
        for (int near; (near = accept(listener_, nullptr, nullptr)) >= 0; ::close(near)) {
            budget = 3000 + budget * 7919 % 50021;
            sockaddr_in at{};
            at.sin_family = AF_INET;
            at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            at.sin_port = htons(static_cast<std::uint16_t>(std::stoi(to_.substr(to_.rfind(':') + 1))));
            int far = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(far, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0) between(near, far, budget);
            ::close(far);
        }
    }

    static void between(int near, int far, long budget) {
        char data[4096];
        while (budget > 0) {
            pollfd waits[]{{near, POLLIN, 0}, {far, POLLIN, 0}};
            poll(waits, 2, -1);
            for (int way = 0; way < 2; ++way) {
                if (waits[way].revents == 0) continue;
                auto got = recv(waits[way].fd, data, std::min<std::size_t>(sizeof data, static_cast<std::size_t>(std::max(budget, 1L))), 0);
                if (got <= 0) return;
                budget -= got;
                for (long done = 0, put; done < got; done += put)
                    if ((put = ::send(waits[1 - way].fd, data + done, static_cast<std::size_t>(got - done), MSG_NOSIGNAL)) <= 0) return;
            }
        }
    }

    std::string to_;
    int listener_;
    std::thread thread_;
};

void nothing_is_lost_or_doubled_where_connections_are_cut() {
    Server server("cuts");
    Cuts cuts(server.addr);
    Connecting how;
    how.retry.first = 1ms;
    how.retry.longest = 10ms;
    how.retry.at_first = true;
    std::vector<std::string> want;
    Producer producer(cuts.addr, named("p"), how);
    for (int n = 0; n < 5000; ++n) {
        want.push_back(std::to_string(n));
        producer.send(want.back());
    }
    producer.close(60s);
    CHECK(payloads(server.addr) == want);
    CHECK(payloads(cuts.addr, {}, how) == want);
    ReaderSettings little;
    little.credit = 5000;
    CHECK(payloads(cuts.addr, little, how) == want);
}

int main() {
    if (!std::getenv("TIDEWIRE")) {
        std::puts("skipped: TIDEWIRE names no server's program");
        return 77;
    }
    char folder[] = "/tmp/tidewire-cpp-XXXXXX";
    place = mkdtemp(folder);
    run("what is sent is read", what_is_sent_is_read);
    run("a producer goes on behind its mark", a_producer_goes_on_behind_its_mark);
    run("a newer producer fences the older", a_newer_producer_fences_the_older);
    run("a small buffer waits for room", a_small_buffer_waits_for_room);
    run("a level that is not granted", a_level_that_is_not_granted);
    run("a cursor is kept", a_cursor_is_kept);
    run("a follower waits", a_follower_waits);
    run("large payloads and little credit", large_payloads_and_little_credit);
    run("a server that stops and starts", a_server_that_stops_and_starts);
    run("a program that polls", a_program_that_polls);
    run("nothing listens", nothing_listens);
    run("Unix sockets", unix_sockets);
    run("tokens", tokens);
    run("TLS", tls);
    run("nothing is lost or doubled where connections are cut", nothing_is_lost_or_doubled_where_connections_are_cut);
    if (std::system(("rm -rf " + place).c_str()) != 0) ++failures;
    return failures > 0;
}
