// Every frame that a producer or a reader may be sent, or sends, as docs/formats/protocol-vectors.txt has it. Administration is no
// matter of these clients.
#include <fstream>
#include <map>
#include <sstream>

#include <tidewire/ingest.hpp>

#include "check.hpp"

using namespace tidewire::ingest;
using namespace tidewire::ingest::detail;

std::string bytes(const std::string& hex) {
    std::string raw;
    for (std::size_t at = 0; at + 1 < hex.size(); at += 2) raw += static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16));
    return raw;
}

std::string hex(std::string_view raw) {
    std::string text;
    for (unsigned char byte : raw) {
        char two[3];
        std::snprintf(two, sizeof two, "%02x", byte);
        text += two;
    }
    return text;
}

std::string shown(const Frame& frame) {
    std::ostringstream to;
    auto flag = [](const char* name, bool is_set) { return is_set ? std::string(" ") + name + "=true" : ""; };
    if (auto* f = std::get_if<Welcome>(&frame)) {
        to << "frame=welcome level=" << name(f->level) << " payload_max=" << f->payload_max << " window_messages=" << f->window_messages
           << " keepalive_ms=" << f->keepalive_ms << " window_bytes=" << f->window_bytes
           << " last_id=" << (f->last_id ? std::to_string(*f->last_id) : "none") << flag("forgotten", f->forgotten);
    } else if (auto* f = std::get_if<Ack>(&frame)) {
        to << "frame=ack id=" << f->id << " keep_alive=" << (f->keep_alive ? "true" : "false");
        if (!f->why.empty()) to << " why=\"" << f->why << '"';
    } else if (auto* f = std::get_if<Refusal>(&frame)) {
        auto reason = name(f->reason);
        std::replace(reason.begin(), reason.end(), ' ', '-');
        to << "frame=refusal id=" << f->id << " reason=" << reason << " retry_after_ms=" << f->retry_after_ms << " text=\"" << f->text
           << "\" closes=" << (f->closes ? "true" : "false");
    } else if (auto* f = std::get_if<ReaderWelcome>(&frame)) {
        to << "frame=reader-welcome first=" << f->first << " next=" << f->next << " start=" << f->start << " body_max=" << f->body_max
           << flag("skipped", f->skipped);
    } else if (auto* f = std::get_if<Batch>(&frame)) {
        to << "frame=batch first=" << f->first << " timestamp_us=" << f->timestamp_us << " count=" << f->count << " producer=\""
           << f->producer << "\" messages=" << hex(f->messages);
    } else if (auto* f = std::get_if<End>(&frame)) {
        to << "frame=end next=" << f->next << flag("short", f->is_short);
    } else {
        to << "frame=unknown kind=" << static_cast<int>(std::get<Unknown>(frame).kind);
    }
    return to.str();
}

void frame_of_the_server(const std::string& name, const std::string& raw, const std::string& fields) {
    if (fields == "malformed") {
        if (raw[0] < 7) THROWS(ProtocolError, decode(raw, 1 << 20));
        return;
    }
    auto decoded = decode(raw, 1 << 20);
    CHECK(decoded && decoded->size == raw.size());
    if (decoded && shown(decoded->frame) != fields) {
        ++failures;
        std::printf("FAILED %s: %s\n", name.c_str(), shown(decoded->frame).c_str());
    }
    for (std::size_t cut = 0; cut < raw.size(); ++cut) CHECK(!decode(std::string_view(raw).substr(0, cut), 1 << 20));
}

std::string made_hello(std::map<std::string, std::string>& has) {
    auto number = [&](const char* name) { return std::stoull(has[name]); };
    if (has["hello"] == "produce") {
        std::map<std::string, std::uint8_t> levels{{"default", 0}, {"received", 1}, {"durable", 2}, {"replicated", 3}};
        return Produce{levels[has["level"]], has["sparse"] == "true", has["adopt"] == "true", static_cast<std::uint32_t>(number("window_messages")),
                       number("window_bytes"), number("first_id"), has["stream"], has["producer"], has["token"]}.encode();
    }
    auto colon = has["begin"].find(':');
    auto kind = has["begin"].substr(0, colon);
    auto at = colon == std::string::npos ? 0 : std::stoull(has["begin"].substr(colon + 1));
    auto begin = kind == "position" ? Begin::position(at) : kind == "tail" ? Begin::tail() : kind == "cursor" ? Begin::cursor() : Begin::timestamp_us(at);
    return Subscribe{begin, has["follow"] == "true", has["may_be_absent"] == "true", number("credit"), has["stream"], has["cursor"], has["token"]}.encode();
}

// name=value and name="value", none of which holds a quote.
std::map<std::string, std::string> parsed(const std::string& fields) {
    std::map<std::string, std::string> found;
    for (std::size_t at = 0; at < fields.size();) {
        auto equals = fields.find('=', at);
        bool is_quoted = fields[equals + 1] == '"';
        auto begin = equals + (is_quoted ? 2 : 1);
        auto end = std::min(fields.find(is_quoted ? '"' : ' ', begin), fields.size());
        found[fields.substr(at, equals - at)] = fields.substr(begin, end - begin);
        at = end + (is_quoted ? 2 : 1);
    }
    return found;
}

int main() {
    auto* path = std::getenv("VECTORS");
    std::ifstream file(path ? path : "");
    if (!file) {
        std::puts("skipped: VECTORS names no file of vectors");
        return 77;
    }
    int seen = 0;
    std::string line;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string name, direction, raw, fields;
        words >> name >> direction >> raw;
        std::getline(words >> std::ws, fields);
        if (line.empty() || line[0] == '#') continue;
        for (auto* other : {"frame=admin-welcome", "frame=stream", "frame=place", "frame=done", "hello=administer"})
            if (fields.rfind(other, 0) == 0) name.clear();
        if (name.empty()) continue;
        ++seen;
        if (direction == "server") {
            frame_of_the_server(name, bytes(raw), fields);
        } else if (direction == "hello" && fields != "malformed") {
            auto has = parsed(fields);
            if (hex(made_hello(has)) != raw) {
                ++failures;
                std::printf("FAILED %s: %s\n", name.c_str(), hex(made_hello(has)).c_str());
            }
        } else if (name == "credit" || name == "commit-cursor") {
            std::string made;
            append_reader_frame(made, name == "credit" ? 1 : 2, std::stoull(fields.substr(fields.rfind('=') + 1)));
            CHECK(hex(made) == raw);
        }
    }
    std::printf("%d vectors, %d failures\n", seen, failures);
    return failures > 0 || seen < 100 ? 1 : 0;
}
