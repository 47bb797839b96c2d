package main

import (
	"fmt"
	"strings"
	"syscall"
	"time"
)

// Latency of replicated writes: one record per request, acks=all, at a fixed total rate. The requests rotate over
// several connections, each to the leader of its partition: a broker may serve the requests of one connection
// sequentially, and then a single connection would measure the length of a queue. The caller that created the topic
// checks at the end that all acknowledged records exist.

type replicateOptions struct {
	produceOptions
	leaders []string // by partition
	pids    []int
	rate    int
	seconds float64
	warmup  float64
}

type replicateOutcome struct {
	latencyOutcome
	Records          int     `json:"records"` // between the two readings of the CPU
	BrokerCPUSeconds float64 `json:"broker_cpu_seconds"`
	LoadCPUSeconds   float64 `json:"load_cpu_seconds"`
}

// line is one connection with the send times of its unanswered requests.
type line struct {
	*producer
	sent []time.Time
}

type replicateRun struct {
	options replicateOptions
	lines   []*line
	started time.Time
	period  time.Duration
	count   int // number of requests, including the warm-up
	skip    int // of these, the requests of the warm-up
	sent    int
	late    []time.Duration
	taken   []time.Duration
	before  replicateOutcome // counters at the end of the warm-up
}

func replicate(options replicateOptions) (result replicateOutcome, err error) {
	if len(options.leaders) == 0 {
		return result, fmt.Errorf("whom to write to is said by -leaders")
	}
	run := &replicateRun{
		options: options,
		period:  time.Second / time.Duration(options.rate),
		count:   int((options.seconds + options.warmup) * float64(options.rate)),
		skip:    int(options.warmup * float64(options.rate)),
	}
	options.acks = allReplicas
	options.inFlight = maxUnanswered
	prepared := newBatch(options.valueSize, 1)
	for i := 0; i < options.connections; i++ {
		partition := i % len(options.leaders)
		options.address = options.leaders[partition]
		c, err := dial(options.address)
		if err != nil {
			return result, err
		}
		p, err := newProducer(options.produceOptions, int32(partition), prepared, c)
		c.close()
		if err != nil {
			return result, err
		}
		defer p.close()
		p.credit = 0 // the timer adds credit
		run.lines = append(run.lines, &line{producer: p})
	}
	if err := run.loop(); err != nil {
		return result, err
	}
	return run.outcome()
}

func (run *replicateRun) loop() error {
	loop, err := newPoller()
	if err != nil {
		return err
	}
	defer loop.close()
	clock, err := timer(run.period)
	if err != nil {
		return err
	}
	defer syscall.Close(clock)
	for i, each := range run.lines {
		if err := loop.add(each.fd, i); err != nil {
			return err
		}
	}
	ticking := len(run.lines)
	if err := loop.add(clock, ticking); err != nil {
		return err
	}
	punctual()
	run.started = time.Now()
	answered := run.started
	for len(run.taken) < run.count {
		events, now, err := loop.wait()
		if err != nil {
			return err
		}
		for _, event := range events {
			if int(event.Fd) == ticking {
				var expirations [8]byte
				syscall.Read(clock, expirations[:])
				err = run.tick()
			} else {
				answered = now
				err = run.acknowledged(run.lines[event.Fd], loop.scratch)
			}
			if err != nil {
				return err
			}
		}
		if run.sent-len(run.taken) > maxUnanswered {
			return fmt.Errorf("%d requests were unanswered: the rate of %d/s is not held", run.sent-len(run.taken), run.options.rate)
		}
		if now.Sub(answered) > stallTimeout {
			return fmt.Errorf("the brokers have not answered for %v", stallTimeout)
		}
	}
	return nil
}

// tick sends the due requests, each on the next connection.
func (run *replicateRun) tick() error {
	for run.sent < run.count {
		due := run.started.Add(time.Duration(run.sent) * run.period)
		now := time.Now()
		if now.Before(due) {
			return nil
		}
		if run.sent == run.skip {
			if err := run.use(&run.before); err != nil {
				return err
			}
		}
		to := run.lines[run.sent%len(run.lines)]
		to.sent = append(to.sent, now)
		run.late = append(run.late, now.Sub(due))
		run.sent++
		to.credit++
		if err := to.push(); err != nil {
			return err
		}
	}
	return nil
}

// acknowledged records the duration of each request. Those of the warm-up come first, except for a few that are
// overtaken.
func (run *replicateRun) acknowledged(from *line, scratch []byte) error {
	answers, err := from.pull(scratch)
	now := time.Now()
	for ; answers > 0; answers-- {
		run.taken = append(run.taken, now.Sub(from.sent[0]))
		from.sent = from.sent[1:]
	}
	if err != nil {
		return err
	}
	return from.push()
}

// use returns the counters so far.
func (run *replicateRun) use(into *replicateOutcome) (err error) {
	into.LoadCPUSeconds = ownCPUSeconds()
	into.BrokerCPUSeconds, err = cpuSeconds(run.options.pids)
	return err
}

func (run *replicateRun) outcome() (replicateOutcome, error) {
	result := replicateOutcome{
		latencyOutcome: latencyOutcome{
			Samples:  run.count - run.skip,
			Micros:   quantiles(run.taken[run.skip:]),
			Lateness: quantiles(run.late[run.skip:]),
		},
		Records: run.count - run.skip,
	}
	err := run.use(&result)
	result.BrokerCPUSeconds -= run.before.BrokerCPUSeconds
	result.LoadCPUSeconds -= run.before.LoadCPUSeconds
	return result, err
}

func split(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' })
}
