package main

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Produce: the same prepared request repeatedly, several in flight per connection. Small requests are kept in many
// consecutive copies, so that all that may be sent go out in one system call.

const (
	copiesSize   = 64 << 10
	drainTimeout = 60 * time.Second
)

type produceOptions struct {
	address     string
	topic       string
	partitions  int
	connections int
	inFlight    int
	acks        int
	valueSize   int
	batchSize   int
	idempotent  bool
	spread      bool // each request carries a batch for every partition
	rotate      bool // each request goes to the next partition
	idle        int  // connections that only send ApiVersions
	existing    bool // the topic exists already, and stays
	settings    string
}

// producer is one connection of the load.
type producer struct {
	*socket
	requests   []byte // copies of one frame
	size       int    // of one frame
	batchAt    int
	records    int32 // in one batch
	idempotent bool
	sequence   int32
	credit     int // number of requests that may still be sent
	nextID     int32
	expected   int32 // the correlation id of the next response
	errorAt    int
	rest       []byte // the start of an incomplete response
	spread     int    // number of partitions in each request, with one request for all
	rotate     int    // number of partitions, if requests rotate over them
	indexAt    int    // position of the partition's number
}

func newProducer(options produceOptions, partition int32, prepared batch, c *control) (*producer, error) {
	frame, batchAt := produceRequest(options.topic, partition, int16(options.acks), prepared.bytes)
	if options.spread {
		frame = spreadRequest(options.topic, options.partitions, int16(options.acks), prepared.bytes)
	}
	p := &producer{
		size:       len(frame),
		batchAt:    batchAt,
		records:    int32(prepared.records),
		idempotent: options.idempotent,
		credit:     options.inFlight,
		errorAt:    produceErrorAt(options.topic),
		indexAt:    batchAt - len(binary.AppendUvarint(nil, uint64(len(prepared.bytes)+1))) - 4,
	}
	if options.spread {
		p.spread = options.partitions
	}
	if options.rotate {
		p.rotate = options.partitions
	}
	if options.idempotent {
		id, epoch, err := c.producerID("")
		if err != nil {
			return nil, err
		}
		setProducer(frame[batchAt:], id, epoch)
	}
	copies := max(1, min(options.inFlight, copiesSize/len(frame)))
	for i := 0; i < copies; i++ {
		p.requests = append(p.requests, frame...)
	}
	var err error
	p.socket, err = connect(options.address)
	return p, err
}

// push sends all requests that may be sent. The copies must not change until the kernel has accepted everything.
func (p *producer) push() error {
	if err := p.flush(); err != nil {
		return err
	}
	for p.credit > 0 && p.idle() {
		n := min(p.credit, len(p.requests)/p.size)
		for i := 0; i < n; i++ {
			frame := p.requests[i*p.size : (i+1)*p.size]
			setCorrelation(frame, p.nextID)
			if p.rotate > 0 {
				binary.BigEndian.PutUint32(frame[p.indexAt:], uint32(int(p.nextID)%p.rotate))
			}
			p.nextID++
			if p.idempotent {
				end := len(frame) - 3 // three empty tag sections
				setSequence(frame[p.batchAt:end], p.sequence)
				p.sequence = (p.sequence + p.records) & 0x7fffffff
			}
		}
		p.credit -= n
		if err := p.send(p.requests[:n*p.size]); err != nil {
			return err
		}
	}
	return nil
}

// pull reads the available responses and returns their number.
func (p *producer) pull(scratch []byte) (int, error) {
	answers := 0
	for {
		kept := copy(scratch, p.rest)
		n, err := p.read(scratch[kept:])
		if err != nil || n == 0 {
			return answers, err
		}
		got := scratch[:kept+n]
		for len(got) >= 4 {
			size := 4 + int(binary.BigEndian.Uint32(got))
			if size > len(got) {
				if size > len(scratch) {
					return answers, fmt.Errorf("an answer of %d bytes to Produce", size)
				}
				break
			}
			if err := p.check(got[:size]); err != nil {
				return answers, err
			}
			answers++
			got = got[size:]
		}
		p.rest = append(p.rest[:0], got...)
		if kept+n < len(scratch) { // a short read: the next event tells when more is available
			return answers, nil
		}
	}
}

func (p *producer) check(answer []byte) error {
	if len(answer) < p.errorAt+2 {
		return fmt.Errorf("an answer of %d bytes to Produce is too short", len(answer))
	}
	if id := int32(binary.BigEndian.Uint32(answer[4:])); id != p.expected {
		return fmt.Errorf("answer %d came where %d was due", id, p.expected)
	}
	if p.spread > 0 {
		if err := spreadAnswer(answer[8:], p.spread); err != nil {
			return err
		}
	} else if code := int16(binary.BigEndian.Uint16(answer[p.errorAt:])); code != 0 {
		return kafkaError{"Produce", code}
	}
	p.expected++
	return nil
}

// produce runs the load on a fresh topic, checks at the end that every acknowledged record is in the log, and deletes
// the topic. An existing topic is used unchanged, and stays.
func produce(options produceOptions, w *window) (result outcome, err error) {
	c, err := dial(options.address)
	if err != nil {
		return result, err
	}
	defer c.close()
	if err := c.needs("Produce", produceKey, produceVersion); err != nil {
		return result, err
	}
	if options.idempotent && (options.spread || options.rotate) {
		return result, fmt.Errorf("a sequence belongs to one partition: -idempotent goes with neither -spread nor -rotate")
	}
	if options.idempotent {
		if err := c.needs("InitProducerId", initProducerIDKey, initProducerIDVersion); err != nil {
			return result, err
		}
	}
	if !options.existing {
		if err := c.createTopic(options.topic, options.partitions, options.settings); err != nil {
			return result, err
		}
		defer func() {
			if failed := c.deleteTopic(options.topic); failed != nil && err == nil {
				err = failed
			}
		}()
	}
	if _, err := c.topicID(options.topic, options.partitions); err != nil {
		return result, err
	}
	return produceAndCount(options, w, c)
}

// produceAndCount verifies acknowledgements: the log must have grown by as many records.
func produceAndCount(options produceOptions, w *window, c *control) (result outcome, err error) {
	before := int64(0)
	if options.spread {
		if err := patiently(func() error { return touch(options, c) }); err != nil {
			return result, err
		}
	}
	if options.existing || options.spread {
		if before, err = c.end(options.topic, options.partitions); err != nil {
			return result, err
		}
	}
	total, result, err := runProducers(options, w, c)
	if err != nil {
		return result, err
	}
	return result, stored(c, options.topic, options.partitions, before+total.records)
}

func stored(c *control, topic string, partitions int, acknowledged int64) error {
	end, err := c.end(topic, partitions)
	if err == nil && end != acknowledged {
		err = fmt.Errorf("%d records were acknowledged, %d are in the log", acknowledged, end)
	}
	return err
}

func runProducers(options produceOptions, w *window, c *control) (total totals, result outcome, err error) {
	loop, err := newPoller()
	if err != nil {
		return total, result, err
	}
	defer loop.close()
	for i := 0; i < options.idle; i++ {
		s, err := connect(options.address)
		if err != nil {
			return total, result, err
		}
		defer s.close()
	}
	prepared := newBatch(options.valueSize, options.batchSize)
	batches := 1 // of a request
	if options.spread {
		batches = options.partitions
		loop.scratch = make([]byte, max(scratchSize, 2*producedPerPart*batches*options.inFlight))
	}
	producers := make([]*producer, options.connections)
	for i := range producers {
		p, err := newProducer(options, int32(i%options.partitions), prepared, c)
		if err != nil {
			return total, result, err
		}
		defer p.close()
		if err := loop.add(p.fd, i); err != nil {
			return total, result, err
		}
		producers[i] = p
	}
	stopped, inFlight := false, 0
	var deadline time.Time
	for { // the first event of each socket reports that it is writable
		events, now, err := loop.wait()
		if err != nil {
			return total, result, err
		}
		for _, event := range events {
			p := producers[event.Fd]
			answers, err := p.pull(loop.scratch)
			if err != nil {
				return total, result, err
			}
			total.requests += int64(answers)
			total.records += int64(answers * batches * prepared.records)
			total.bytes += int64(answers * batches * len(prepared.bytes))
			p.credit += answers
			if stopped {
				inFlight -= answers
				err = p.flush()
			} else {
				err = p.push()
			}
			if err != nil {
				return total, result, err
			}
		}
		if stopped && inFlight == 0 {
			return total, result, nil
		}
		if stopped && now.After(deadline) {
			return total, result, fmt.Errorf("%d requests were not answered in %v", inFlight, drainTimeout)
		}
		if !stopped {
			stopped, err = w.closes(now, total)
			if err != nil {
				return total, result, err
			}
			if stopped {
				result, err = w.outcome(total)
				if err != nil {
					return total, result, err
				}
				deadline = now.Add(drainTimeout)
				for _, p := range producers {
					inFlight += options.inFlight - p.credit
				}
			}
		}
	}
}
