package ingest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"
)

// Retry is how a client connects, and connects again. The zero value has the defaults.
//
// The pause after a failed attempt doubles from First up to Longest. The pause taken is drawn from its upper half, so that
// clients which lost a server together do not come back together.
type Retry struct {
	// Attempts before giving up, counted from when the connection was lost; 1 makes no second one. Default 0: no limit.
	Attempts int
	// Within is for how long new attempts are begun; default 60 s.
	Within time.Duration
	// First is the first pause, default 50 ms; Longest the longest, default 5 s.
	First, Longest time.Duration
	// Timeout is how long one attempt may take, TLS included; default 10 s.
	Timeout time.Duration
	// AtFirst repeats the very first attempt as well, when it fails.
	AtFirst bool
	// Moves is how often a server that names another one is followed without a pause. Default 4; below 0 never.
	Moves int
}

func (r Retry) withDefaults() Retry {
	def := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	def(&r.Within, time.Minute)
	def(&r.First, 50*time.Millisecond)
	def(&r.Longest, 5*time.Second)
	def(&r.Timeout, 10*time.Second)
	if r.Moves == 0 {
		r.Moves = 4
	}
	return r
}

type address struct{ network, place, host string }

func parseAddress(text string) (address, error) {
	if place, ok := strings.CutPrefix(text, "unix:"); ok {
		// Package net writes names of the abstract namespace with @ as well.
		if strings.HasPrefix(place, "/") || (strings.HasPrefix(place, "@") && len(place) > 1) {
			return address{"unix", place, "localhost"}, nil
		}
		return address{}, fmt.Errorf("%q is no address: a Unix socket is unix:/PATH or unix:@NAME", text)
	}
	host, port, err := net.SplitHostPort(text)
	if err == nil && host == "" {
		err = errors.New("it has no host")
	}
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return address{}, fmt.Errorf("%q is no address, HOST:PORT, unix:/PATH or unix:@NAME: %w", text, err)
	}
	return address{"tcp", text, host}, nil
}

func (a address) String() string {
	if a.network == "unix" {
		return "unix:" + a.place
	}
	return a.place
}

// attempts is what was tried since the connection was lost, and what is tried next.
type attempts struct {
	retry   Retry
	first   address
	named   *address
	atNamed bool
	moves   int
	failed  int
	// isFirst: there was no welcome yet.
	isFirst bool
	logger  *slog.Logger
}

func newAttempts(text string, retry Retry, logger *slog.Logger) (*attempts, error) {
	first, err := parseAddress(text)
	if err != nil {
		return nil, err
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &attempts{retry: retry.withDefaults(), first: first, isFirst: true, logger: logger}, nil
}

func (a *attempts) address() address {
	if a.atNamed {
		return *a.named
	}
	return a.first
}

// timeLeft is how long an answer to a hello may take; false where only the client's own silence bounds it.
func (a *attempts) timeLeft(elapsed time.Duration) (time.Duration, bool) {
	return max(a.retry.Within-elapsed, 250*time.Millisecond), a.retry.Attempts != 1
}

func (a *attempts) succeeded() { a.moves, a.failed, a.isFirst = 0, 0, false }

// follows says whether to connect at once to the server that was named. A server cannot name a socket on this host.
func (a *attempts) follows(text string) bool {
	named, err := parseAddress(text)
	if err != nil || named.network != "tcp" || a.moves >= a.retry.Moves {
		return false
	}
	a.moves++
	a.named, a.atNamed = &named, true
	return true
}

// pauseAfter is how long to pause before the next attempt; an error if there is none.
func (a *attempts) pauseAfter(failure error, elapsed time.Duration) (time.Duration, error) {
	var refused *RefusedError
	isRefused := errors.As(failure, &refused)
	if isRefused && refused.Reason == Moved && a.follows(refused.Text) {
		a.logger.Info("the server names another one", "address", a.address().String())
		return 0, nil
	}
	// The other of the two servers is asked next.
	a.moves, a.atNamed = 0, !a.atNamed && a.named != nil
	if !passing(failure) || (a.isFirst && !a.retry.AtFirst) {
		return 0, failure
	}
	a.failed++
	if (a.retry.Attempts > 0 && a.failed >= a.retry.Attempts) || elapsed >= a.retry.Within {
		if a.failed == 1 {
			return 0, failure
		}
		return 0, &GaveUpError{a.failed, elapsed, failure}
	}
	whole := min(a.retry.First<<min(a.failed-1, 20), a.retry.Longest)
	pause := whole/2 + rand.N(whole/2+1)
	if isRefused {
		pause = max(pause, refused.RetryAfter)
	}
	pause = min(pause, a.retry.Within-elapsed)
	a.logger.Warn("connecting again", "pause", pause, "because", failure)
	return pause, nil
}

// dial makes one connection. since: when the last one was lost.
func (a *attempts) dial(ctx context.Context, config *tls.Config, since time.Time) (net.Conn, error) {
	to, timeout := a.address(), a.retry.Timeout
	if left, ok := a.timeLeft(time.Since(since)); ok {
		timeout = min(timeout, left)
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(within, to.network, to.place)
	if err != nil {
		return nil, failed(ctx, "connect to", to, err)
	}
	if config == nil {
		return conn, nil
	}
	config = config.Clone()
	if config.ServerName == "" {
		config.ServerName = to.host
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(within); err != nil {
		conn.Close()
		return nil, failed(ctx, "speak TLS with", to, err)
	}
	return secured, nil
}

// failed is an error of a socket, unless the caller has given up.
func failed(ctx context.Context, what string, to address, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &connError{what, to.String(), err}
}

// sleep is false if the context ended before.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
