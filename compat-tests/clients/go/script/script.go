// Package script reads commands line by line and has a client obey them; clients/program.py describes the lines.
package script

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

const (
	Earliest = -2
	Latest   = -1
	Patience = 30 * time.Second
	// NoCode is said of an error that no broker sent.
	NoCode = -1
)

// Bytes are hexadecimal in JSON; nil is null, which is not the same as empty.
type Bytes []byte

func (b Bytes) MarshalJSON() ([]byte, error) {
	if b == nil {
		return []byte("null"), nil
	}
	return json.Marshal(hex.EncodeToString(b))
}

func (b *Bytes) UnmarshalJSON(text []byte) error {
	var digits *string
	if err := json.Unmarshal(text, &digits); err != nil || digits == nil {
		*b = nil
		return err
	}
	decoded, err := hex.DecodeString(*digits)
	*b = decoded
	return err
}

type Header struct {
	Name  string
	Value Bytes
}

func (h Header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Name, h.Value}) }

func (h *Header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&h.Name, &h.Value})
}

// Record is written with its partition and read with its offset in the first place.
type Record struct {
	Place     int64
	Key       Bytes
	Value     Bytes
	Headers   []Header
	Timestamp int64
}

func (r Record) MarshalJSON() ([]byte, error) {
	if r.Headers == nil {
		r.Headers = []Header{}
	}
	return json.Marshal([]any{r.Place, r.Key, r.Value, r.Headers, r.Timestamp})
}

func (r *Record) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&r.Place, &r.Key, &r.Value, &r.Headers, &r.Timestamp})
}

type Command struct {
	Do         string
	Topic      string
	Partition  int32
	Partitions int32
	Total      int32
	Config     map[string]string
	Put        map[string]string
	Drop       []string
	Kind       string
	Name       string
	Before     int64
	Records    []Record
	Codec      string
	Acks       int16
	Idempotent bool
	Offset     int64
	Count      int
	Timestamp  int64
	Group      string
	Assignor   string
	Protocol   string
	SessionMs  int `json:"session_ms"`
	// Of a copier.
	Source          string
	Target          string
	TransactionalID string `json:"transactional_id"`
	TimeoutMs       int    `json:"timeout_ms"`
	AbortEvery      int    `json:"abort_every"`
}

// Member tells what happens to a member of a group, line by line; clients/member.py describes the lines.
type Member struct {
	mutex sync.Mutex
	has   map[int32]bool
}

// Left is done when standard input has ended: then the member shall leave.
func (m *Member) Left() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

func (m *Member) Gains(partitions []int32) { m.change(partitions, true) }

func (m *Member) Loses(partitions []int32) { m.change(partitions, false) }

func (m *Member) change(partitions []int32, has bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.has == nil {
		m.has = map[int32]bool{}
	}
	for _, partition := range partitions {
		m.has[partition] = has
	}
	list := []int32{}
	for partition, has := range m.has {
		if has {
			list = append(list, partition)
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"has": list})
}

// Saw tells of records, each a partition and an offset, before they are committed.
func (m *Member) Saw(records [][2]int64) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"saw": records})
}

// Refused is an error code that the broker sent in an answer which the client does not turn into an error by itself.
type Refused struct {
	Code int
	Said string
}

func (r Refused) Error() string { return fmt.Sprintf("%d: %s", r.Code, r.Said) }

type Obey func(command *Command) (any, error)

// Run answers every line of standard input. What a client returns as an error is given its code by codeOf.
func Run(verbs map[string]Obey, codeOf func(error) int) {
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}
		command := &Command{}
		if err := json.Unmarshal(line, command); err != nil {
			panic(err)
		}
		obey, known := verbs[command.Do]
		if !known {
			panic(command.Do)
		}
		if done, err := obey(command); err != nil {
			_ = output.Encode(map[string]any{"code": codeOf(err), "said": err.Error()})
		} else {
			_ = output.Encode(map[string]any{"done": done})
		}
	}
}
