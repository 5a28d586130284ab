// The bytes of the native protocol: hellos and readers' frames are written, servers' frames are read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "errors.hpp"

namespace tidewire::ingest {

// What the server grants a producer.
struct Welcome {
    Level level;
    std::uint32_t payload_max, window_messages, keepalive_ms;
    std::uint64_t window_bytes;
    std::optional<std::uint64_t> last_id;  // the producer's mark: the highest id that the server has taken
    bool forgotten;
};

// What the server has of a stream.
struct ReaderWelcome {
    std::uint64_t first;  // the oldest position kept
    std::uint64_t next;   // one past the last
    std::uint64_t start;  // where reading begins
    std::uint32_t body_max;
    bool skipped;  // records between what was asked for and `start` have been removed
};

// Where reading begins.
struct Begin {
    std::uint8_t kind = 0;
    std::uint64_t at = 0;

    static Begin first() { return {1, 0}; }
    static Begin tail() { return {2, 0}; }
    static Begin position(std::uint64_t at) { return {1, at}; }
    static Begin timestamp_us(std::uint64_t at) { return {3, at}; }
    static Begin cursor() { return {4, 0}; }
};

namespace detail {

constexpr std::size_t message_header = 12;
constexpr std::size_t frame_header = 8;
constexpr std::size_t body_max = 1024;  // of any frame but a batch

template <class T>
void put(char* to, T value) {
    for (std::size_t at = 0; at < sizeof value; ++at) to[at] = static_cast<char>(value >> (8 * at));
}

template <class T>
void append(std::string& to, T value) {
    char bytes[sizeof value];
    put(bytes, value);
    to.append(bytes, sizeof bytes);
}

template <class T>
T get(const char* from) {
    T value = 0;
    for (std::size_t at = 0; at < sizeof value; ++at) value |= static_cast<T>(static_cast<unsigned char>(from[at])) << (8 * at);
    return value;
}

// Whether a text is UTF-8: no overlong forms, surrogates or code points above U+10FFFF.
inline bool is_utf8(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        auto lead = static_cast<unsigned char>(text[at]);
        std::size_t length = lead < 0x80 ? 1 : lead >= 0xc2 && lead < 0xe0 ? 2 : (lead & 0xf0) == 0xe0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
        if (length == 0 || text.size() - at < length) return false;
        for (std::size_t n = 1; n < length; ++n)
            if ((static_cast<unsigned char>(text[at + n]) & 0xc0) != 0x80) return false;
        auto second = length > 1 ? static_cast<unsigned char>(text[at + 1]) : 0;
        if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) || (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f))
            return false;
        at += length;
    }
    return true;
}

inline void append_string(std::string& to, const char* field, std::string_view text, bool is_name) {
    if (text.size() > 255)
        throw std::invalid_argument(std::string(field) + " has " + std::to_string(text.size()) + " bytes; at most 255 can be sent");
    if (!is_utf8(text)) throw std::invalid_argument(std::string(field) + " is not UTF-8");
    for (std::size_t at = 0; is_name && at < text.size(); ++at) {
        auto byte = static_cast<unsigned char>(text[at]);
        if (byte < 0x20 || byte == 0x7f || (byte == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0))
            throw std::invalid_argument(std::string(field) + " has control characters");
    }
    to += static_cast<char>(text.size());
    to += text;
}

inline std::string finished_hello(std::string hello) {
    put(&hello[6], static_cast<std::uint16_t>(hello.size() - frame_header));
    return hello;
}

struct Produce {
    std::uint8_t level;
    bool sparse, adopt;
    std::uint32_t window_messages;
    std::uint64_t window_bytes, first_id;
    std::string_view stream, producer, token;

    std::string encode() const {
        std::string to("TIDE\x01\x01\0\0", 8);
        to += static_cast<char>(level);
        to += static_cast<char>((sparse ? 1 : 0) | (adopt ? 2 : 0));
        append<std::uint16_t>(to, 0);
        append(to, window_messages);
        append(to, window_bytes);
        append(to, first_id);
        append_string(to, "the stream", stream, true);
        append_string(to, "the producer's name", producer, true);
        append_string(to, "the token", token, false);
        return finished_hello(std::move(to));
    }
};

struct Subscribe {
    Begin begin;
    bool follow, may_be_absent;
    std::uint64_t credit;
    std::string_view stream, cursor, token;

    std::string encode() const {
        std::string to("TIDE\x01\x02\0\0", 8);
        to += static_cast<char>(begin.kind);
        to += static_cast<char>((follow ? 1 : 0) | (may_be_absent ? 2 : 0));
        append<std::uint16_t>(to, 0);
        append(to, credit);
        append(to, begin.at);
        append_string(to, "the stream", stream, true);
        append_string(to, "the cursor", cursor, true);
        append_string(to, "the token", token, false);
        return finished_hello(std::move(to));
    }
};

// A credit (kind 1), or a cursor's new place (kind 2).
inline void append_reader_frame(std::string& to, std::uint8_t kind, std::uint64_t value) {
    append<std::uint32_t>(to, kind);
    append<std::uint32_t>(to, 8);
    append(to, value);
}

struct Ack {
    std::uint64_t id;
    bool keep_alive;
    std::string_view why;
};

struct Refusal {
    std::uint64_t id;
    Reason reason;
    std::uint32_t retry_after_ms;
    std::string_view text;
    bool closes;

    Refused error() const { return Refused(reason, id, std::string(text), retry_after_ms); }
};

struct Batch {
    std::uint64_t first, timestamp_us;
    std::uint32_t count;
    std::string_view producer, messages;
};

struct End {
    std::uint64_t next;
    bool is_short;
};

struct Unknown {
    std::uint8_t kind;
};

using Frame = std::variant<Unknown, Welcome, Ack, Refusal, ReaderWelcome, Batch, End>;

// Cuts fields off the front of a body.
class Fields {
public:
    Fields(std::uint8_t kind, std::string_view rest) : kind_(kind), rest_(rest) {}

    template <class T>
    T number() {
        return get<T>(take(sizeof(T)).data());
    }

    std::string_view text() {
        auto text = take(number<std::uint8_t>());
        if (!is_utf8(text)) bad("has a string that is not UTF-8");
        return text;
    }

    std::string_view rest() const { return rest_; }

    [[noreturn]] void bad(const std::string& why) const { throw ProtocolError("a frame of kind " + std::to_string(kind_) + " " + why); }

private:
    std::string_view take(std::size_t size) {
        if (rest_.size() < size) bad("is too short for its fields");
        auto taken = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return taken;
    }

    std::uint8_t kind_;
    std::string_view rest_;
};

struct Decoded {
    Frame frame;
    std::size_t size;  // with its header
};

// How many bytes the frame at the front of `data` has, as far as is known.
inline std::size_t needed(std::string_view data) {
    return data.size() < frame_header ? frame_header : frame_header + get<std::uint32_t>(data.data() + 4);
}

// The frame at the front of `data`, which it points into; nothing if it is not whole.
inline std::optional<Decoded> decode(std::string_view data, std::size_t most) {
    if (data.size() < frame_header) return std::nullopt;
    std::size_t size = get<std::uint32_t>(data.data() + 4);
    if (size > most)
        throw ProtocolError("a frame of " + std::to_string(size) + " bytes is too long: at most " + std::to_string(most) + " are allowed");
    if (data.size() < frame_header + size) return std::nullopt;
    auto kind = static_cast<std::uint8_t>(data[0]);
    auto flags = static_cast<std::uint8_t>(data[1]);
    Fields fields(kind, data.substr(frame_header, size));
    Frame frame = Unknown{kind};
    // Members in braces are initialised in their order.
    switch (kind) {
        case 1: {
            auto level = static_cast<std::uint8_t>(fields.number<std::uint32_t>());
            if (level < 1 || level > 3) fields.bad("grants level " + std::to_string(level) + ", which there is not");
            Welcome welcome{static_cast<Level>(level), fields.number<std::uint32_t>(), fields.number<std::uint32_t>(),
                            fields.number<std::uint32_t>(), fields.number<std::uint64_t>(), fields.number<std::uint64_t>(), (flags & 2) != 0};
            if (!(flags & 1)) welcome.last_id.reset();
            frame = welcome;
            break;
        }
        case 2: {
            Ack ack{fields.number<std::uint64_t>(), (flags & 1) != 0, {}};
            if (ack.keep_alive && !fields.rest().empty()) ack.why = fields.text();
            frame = ack;
            break;
        }
        case 3: {
            Refusal refusal{};
            refusal.id = fields.number<std::uint64_t>();
            refusal.reason = static_cast<Reason>(fields.number<std::uint16_t>());
            fields.number<std::uint16_t>();
            refusal.retry_after_ms = fields.number<std::uint32_t>();
            refusal.text = fields.text();
            refusal.closes = (flags & 1) != 0;
            frame = refusal;
            break;
        }
        case 4: {
            ReaderWelcome welcome{fields.number<std::uint64_t>(), fields.number<std::uint64_t>(), fields.number<std::uint64_t>(),
                                  fields.number<std::uint32_t>(), (flags & 1) != 0};
            fields.number<std::uint32_t>();
            frame = welcome;
            break;
        }
        case 5: {
            Batch batch{fields.number<std::uint64_t>(), fields.number<std::uint64_t>(), fields.number<std::uint32_t>(), fields.text(), {}};
            batch.messages = fields.rest();
            frame = batch;
            break;
        }
        case 6:
            frame = End{fields.number<std::uint64_t>(), (flags & 1) != 0};
            break;
    }
    return Decoded{frame, frame_header + size};
}

}  // namespace detail
}  // namespace tidewire::ingest
