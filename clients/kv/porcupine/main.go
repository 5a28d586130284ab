// Judges histories of single keys by Porcupine, a checker of linearizability.
//
// Standard input has an operation a line, as JSON; those of one history may stand among those of
// others:
//
//	{"history":"3","ask":"set","value":7,"answer":null,"begin":4,"end":9}
//
// ask is get, set, swap (SET with GET), setnx, incr, del or getdel; value is absent where there is none
// to write; answer is a number or null. An operation without an end was never answered: it may have
// happened at any time since it began, or not at all. Each history begins with a key that is absent.
//
// For each history a line says whether it is linearizable, `3 yes` or `3 no`. The exit status is 0 if
// all could be judged.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

// How long a history may be judged.
const patience = 60 * time.Second

type operation struct {
	History string `json:"history"`
	Ask     string `json:"ask"`
	Value   int64  `json:"value"`
	Answer  *int64 `json:"answer"`
	Begin   int64  `json:"begin"`
	End     *int64 `json:"end"`
}

// A number or its absence: what a key holds, and what is answered.
type maybe struct {
	there bool
	value int64
}

// An answer that was not heard may have been any.
type output struct {
	heard  bool
	answer maybe
}

func some(value int64) maybe { return maybe{true, value} }

func yes(is bool) maybe {
	if is {
		return some(1)
	}
	return some(0)
}

// What a key that holds something answers, and what it holds afterwards.
func apply(ask string, value int64, held maybe) (maybe, maybe, error) {
	switch ask {
	case "get":
		return held, held, nil
	case "set":
		return maybe{}, some(value), nil
	case "swap":
		return held, some(value), nil
	case "setnx":
		if held.there {
			return yes(false), held, nil
		}
		return yes(true), some(value), nil
	case "incr":
		return some(held.value + 1), some(held.value + 1), nil
	case "del":
		return yes(held.there), maybe{}, nil
	case "getdel":
		return held, maybe{}, nil
	}
	return maybe{}, maybe{}, fmt.Errorf("nobody can ask for %q", ask)
}

var key = porcupine.Model{
	Init: func() any { return maybe{} },
	Step: func(state, input, out any) (bool, any) {
		asked, told := input.(operation), out.(output)
		answer, next, _ := apply(asked.Ask, asked.Value, state.(maybe))
		return !told.heard || answer == told.answer, next
	},
}

func read(from io.Reader) (names []string, histories map[string][]porcupine.Operation, err error) {
	histories = map[string][]porcupine.Operation{}
	lines := bufio.NewScanner(from)
	for number := 1; lines.Scan(); number++ {
		var op operation
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", number, err)
		}
		if _, _, err := apply(op.Ask, 0, maybe{}); err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", number, err)
		}
		history, known := histories[op.History]
		if !known {
			names = append(names, op.History)
		}
		entry := porcupine.Operation{
			ClientId: len(history),
			Input:    op,
			Output:   output{},
			Call:     op.Begin,
			Return:   math.MaxInt64,
		}
		if op.End != nil {
			told := output{heard: true}
			if op.Answer != nil {
				told.answer = some(*op.Answer)
			}
			entry.Output, entry.Return = told, *op.End
		}
		histories[op.History] = append(history, entry)
	}
	return names, histories, lines.Err()
}

func main() {
	names, histories, err := read(os.Stdin)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	judged := true
	for _, name := range names {
		switch porcupine.CheckOperationsTimeout(key, histories[name], patience) {
		case porcupine.Ok:
			fmt.Println(name, "yes")
		case porcupine.Illegal:
			fmt.Println(name, "no")
		case porcupine.Unknown:
			fmt.Fprintf(os.Stderr, "%s: not judged within %v\n", name, patience)
			judged = false
		}
	}
	if !judged {
		os.Exit(1)
	}
}
