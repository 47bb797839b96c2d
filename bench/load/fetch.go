package main

import (
	"encoding/binary"
	"fmt"
	"math/rand"
)

// Fetch: one request in flight per connection, as in consumers, over a log of equal batches that fill wrote. The
// records are discarded; their number follows from their size. A connection that reaches the end of the log starts
// again at its beginning.

type fetchOptions struct {
	address     string
	topic       string
	connections int
	size        int
	valueSize   int
	batchSize   int
	copies      bool
	places      int // positions of the log to read: each once, then at random; 0 reads sequentially
}

// fetcher is one connection that reads. It calls `received` with the records' size when a response is complete.
type fetcher struct {
	*socket
	request   []byte
	offsetAt  int
	offset    int64
	nextID    int32
	head      []byte // the start of the current response
	remaining int    // bytes of the current response that have not arrived yet
	inAnswer  bool
	records   int // size of the current response's records
	copies    bool
	received  func(size int) error
}

func newFetcher(address string, topicID []byte, size, minBytes, maxWaitMillis int) (*fetcher, error) {
	s, err := connect(address)
	f := &fetcher{socket: s, copies: true, head: make([]byte, 0, fetchHeadSize)}
	f.request, f.offsetAt = fetchRequest(topicID, 0, int32(size), int32(minBytes), int32(maxWaitMillis))
	return f, err
}

func (f *fetcher) ask() error {
	f.nextID++
	setCorrelation(f.request, f.nextID)
	setFetchOffset(f.request, f.offsetAt, f.offset)
	return f.send(f.request)
}

// pull reads available bytes: the head of a response into the buffer; the rest is dropped inside of the kernel, unless
// the generator is configured to copy it as a client would. Without that copy the load is much faster than the broker.
func (f *fetcher) pull(scratch []byte) error {
	for {
		var wanted, n int
		var err error
		if f.inAnswer && !f.copies {
			wanted = f.remaining
			n, err = f.drop(wanted)
		} else {
			wanted = len(scratch)
			if !f.copies {
				wanted = fetchHeadSize - len(f.head)
			}
			n, err = f.read(scratch[:wanted])
		}
		if err != nil || n == 0 {
			return err
		}
		if f.inAnswer && !f.copies {
			err = f.count(n)
		} else {
			err = f.consume(scratch[:n])
		}
		if err != nil || n < wanted { // a short read: no more bytes are available
			return err
		}
	}
}

// consume handles received bytes: first the head of a response, then bytes that are only counted.
func (f *fetcher) consume(got []byte) error {
	for len(got) > 0 {
		if !f.inAnswer {
			wanted := fetchHeadSize
			if len(f.head) >= 4 { // a response without records may be shorter than a head
				wanted = min(wanted, 4+int(binary.BigEndian.Uint32(f.head)))
			} else {
				wanted = 4
			}
			n := min(wanted-len(f.head), len(got))
			f.head = append(f.head, got[:n]...)
			got = got[n:]
			if len(f.head) < wanted || wanted == 4 {
				continue
			}
			if err := f.begin(); err != nil {
				return err
			}
		}
		n := min(f.remaining, len(got))
		got = got[n:]
		if err := f.count(n); err != nil {
			return err
		}
	}
	return nil
}

// count counts n more bytes of the current response.
func (f *fetcher) count(n int) error {
	f.remaining -= n
	if f.remaining > 0 {
		return nil
	}
	f.inAnswer = false
	return f.received(f.records)
}

func (f *fetcher) begin() error {
	id, code, records, err := fetchHead(f.head[4:])
	switch {
	case err != nil:
		return fmt.Errorf("Fetch: %w", err)
	case code != 0:
		return kafkaError{"Fetch", code}
	case id != f.nextID:
		return fmt.Errorf("answer %d came where %d was due", id, f.nextID)
	}
	f.records = records
	f.remaining = 4 + int(binary.BigEndian.Uint32(f.head)) - len(f.head)
	f.inAnswer = true
	f.head = f.head[:0]
	return nil
}

func fetch(options fetchOptions, w *window) (result outcome, err error) {
	c, err := dial(options.address)
	if err != nil {
		return result, err
	}
	defer c.close()
	if err := c.needs("Fetch", fetchKey, fetchVersion); err != nil {
		return result, err
	}
	id, err := c.topicID(options.topic, 1)
	if err != nil {
		return result, err
	}
	end, err := c.end(options.topic, 1)
	if err != nil {
		return result, err
	}
	stored := newBatch(options.valueSize, options.batchSize)
	if end < int64(stored.records) {
		return result, fmt.Errorf("%s is empty; fill it first", options.topic)
	}
	loop, err := newPoller()
	if err != nil {
		return result, err
	}
	defer loop.close()
	var total totals
	batches := end / int64(stored.records)
	places := min(int64(options.places), batches)
	asked := int64(0)
	random := rand.New(rand.NewSource(1))
	fetchers := make([]*fetcher, options.connections)
	for i := range fetchers {
		f, err := newFetcher(options.address, id, options.size, 1, 500)
		if err != nil {
			return result, err
		}
		defer f.close()
		f.copies = options.copies
		// Each connection reads another part of the log, from the start of a batch.
		f.offset = batches * int64(i) / int64(options.connections) * int64(stored.records)
		f.received = func(size int) error {
			whole := size / len(stored.bytes)
			if whole == 0 {
				return fmt.Errorf("an answer at offset %d of %d has %d bytes, less than a batch", f.offset, end, size)
			}
			total.requests++
			total.records += int64(whole * stored.records)
			total.bytes += int64(whole * len(stored.bytes)) // a consumer cannot use a partial batch at the end
			f.offset += int64(whole * stored.records)
			if places > 0 {
				place := asked
				if asked >= places {
					place = random.Int63n(places)
				}
				asked++
				f.offset = batches * place / places * int64(stored.records)
			} else if f.offset >= end {
				f.offset = 0
			}
			return f.ask()
		}
		if err := loop.add(f.fd, i); err != nil {
			return result, err
		}
		if err := f.ask(); err != nil {
			return result, err
		}
		fetchers[i] = f
	}
	for {
		events, now, err := loop.wait()
		if err != nil {
			return result, err
		}
		for _, event := range events {
			f := fetchers[event.Fd]
			if err := f.flush(); err != nil {
				return result, err
			}
			if err := f.pull(loop.scratch); err != nil {
				return result, err
			}
		}
		if over, err := w.closes(now, total); err != nil {
			return result, err
		} else if over {
			return w.outcome(total)
		}
	}
}
