package main

import (
	"fmt"
	"sort"
	"syscall"
	"time"
	"unsafe"
)

// Latency at a fixed rate: one record per request, sent at its due time, whether or not earlier requests were answered;
// so a slow response delays no other request, and each request that waited behind it is counted with its wait. A timer
// descriptor keeps the time, because Go's own timers are a millisecond late on an idle machine. With `consume` a second
// connection reads with a long poll, and the time until a record arrives there is measured instead.

const (
	tailFetchSize = 1 << 20
	tailMaxWait   = 500
	// With this many unanswered requests, the broker cannot hold the rate.
	maxUnanswered = 20_000
)

type latencyOptions struct {
	produceOptions
	rate     int
	seconds  float64
	warmup   float64
	consume  bool
	ordinary bool
}

type latencyOutcome struct {
	Samples  int                `json:"samples"`
	Micros   map[string]float64 `json:"micros"`
	Lateness map[string]float64 `json:"lateness_micros"` // how late the generator itself was
}

type latencyRun struct {
	options  latencyOptions
	producer *producer
	tail     *fetcher
	sent     []time.Time
	late     []time.Duration
	taken    []time.Duration
	batch    batch
	started  time.Time
	period   time.Duration
}

func latency(options latencyOptions) (result latencyOutcome, err error) {
	c, err := dial(options.address)
	if err != nil {
		return result, err
	}
	defer c.close()
	if err := c.createTopic(options.topic, 1, options.settings); err != nil {
		return result, err
	}
	defer func() {
		if failed := c.deleteTopic(options.topic); failed != nil && err == nil {
			err = failed
		}
	}()
	id, err := c.topicID(options.topic, 1)
	if err != nil {
		return result, err
	}
	count := int((options.seconds + options.warmup) * float64(options.rate))
	run := &latencyRun{
		options: options,
		batch:   newBatch(options.valueSize, 1),
		sent:    make([]time.Time, 0, count),
		late:    make([]time.Duration, 0, count),
		taken:   make([]time.Duration, 0, count),
		period:  time.Second / time.Duration(options.rate),
	}
	options.inFlight = maxUnanswered
	if run.producer, err = newProducer(options.produceOptions, 0, run.batch, c); err != nil {
		return result, err
	}
	defer run.producer.close()
	run.producer.credit = 0 // the timer adds credit
	if options.consume {
		if run.tail, err = newFetcher(options.address, id, tailFetchSize, 1, tailMaxWait); err != nil {
			return result, err
		}
		defer run.tail.close()
		run.tail.received = run.arrived
	}
	if err := run.loop(count); err != nil {
		return result, err
	}
	skip := int(options.warmup * float64(options.rate))
	return latencyOutcome{
		Samples:  count - skip,
		Micros:   quantiles(run.taken[skip:]),
		Lateness: quantiles(run.late[skip:]),
	}, stored(c, options.topic, 1, int64(count))
}

const (
	timerNumber = iota
	producerNumber
	tailNumber
)

func (run *latencyRun) loop(count int) error {
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
	if err := loop.add(run.producer.fd, producerNumber); err != nil {
		return err
	}
	if run.tail != nil {
		if err := loop.add(run.tail.fd, tailNumber); err != nil {
			return err
		}
		if err := run.tail.ask(); err != nil {
			return err
		}
	}
	if !run.options.ordinary {
		punctual()
	}
	run.started = time.Now()
	if err := loop.add(clock, timerNumber); err != nil {
		return err
	}
	answered := time.Now()
	for len(run.taken) < cap(run.taken) || run.producer.expected < int32(count) {
		events, now, err := loop.wait()
		if err != nil {
			return err
		}
		for _, event := range events {
			switch event.Fd {
			case timerNumber:
				var expirations [8]byte // the number of expirations since the last read
				syscall.Read(clock, expirations[:])
				err = run.tick(count)
			case producerNumber:
				err = run.acknowledged(loop.scratch)
				answered = now
			case tailNumber:
				if err = run.tail.flush(); err == nil {
					err = run.tail.pull(loop.scratch)
				}
			}
			if err != nil {
				return err
			}
		}
		if unanswered := len(run.sent) - len(run.taken); unanswered > maxUnanswered {
			return fmt.Errorf("%d requests were unanswered: the rate of %d/s is not held", unanswered, run.options.rate)
		}
		if now.Sub(answered) > stallTimeout {
			return fmt.Errorf("the broker has not answered for %v", stallTimeout)
		}
	}
	return nil
}

// tick sends the due requests. The send time is the time before the write; the generator's own lateness is reported
// separately, and is the same for every broker.
func (run *latencyRun) tick(count int) error {
	for {
		due := run.started.Add(time.Duration(len(run.sent)) * run.period)
		now := time.Now()
		if len(run.sent) == count || now.Before(due) {
			return nil
		}
		run.sent = append(run.sent, now)
		run.late = append(run.late, now.Sub(due))
		run.producer.credit++
		if err := run.producer.push(); err != nil {
			return err
		}
	}
}

func (run *latencyRun) acknowledged(scratch []byte) error {
	answers, err := run.producer.pull(scratch)
	now := time.Now()
	if run.tail == nil {
		for ; answers > 0; answers-- {
			run.taken = append(run.taken, now.Sub(run.sent[len(run.taken)]))
		}
	}
	if err != nil {
		return err
	}
	return run.producer.push() // due requests that the kernel did not accept before
}

func (run *latencyRun) arrived(size int) error {
	now := time.Now()
	batches := size / len(run.batch.bytes)
	for ; batches > 0 && len(run.taken) < len(run.sent); batches-- {
		run.taken = append(run.taken, now.Sub(run.sent[len(run.taken)]))
	}
	run.tail.offset = int64(len(run.taken))
	if len(run.taken) == cap(run.taken) {
		return nil
	}
	return run.tail.ask()
}

// punctual gives this thread real-time priority, if the system permits it: it must read a response when it arrives.
// Otherwise the scheduling delay of a busy machine would be counted twice, for the broker and for the client. The
// thread uses some per cent of the time, and both brokers have the same client.
func punctual() {
	const first = 1 // of SCHED_FIFO; without the permission, the thread keeps its normal priority
	priority := int32(1)
	syscall.RawSyscall(syscall.SYS_SCHED_SETSCHEDULER, 0, first, uintptr(unsafe.Pointer(&priority)))
}

// timer is a descriptor that becomes readable once per period.
func timer(period time.Duration) (int, error) {
	const monotonic, flags = 1, syscall.O_NONBLOCK | syscall.O_CLOEXEC
	fd, _, errno := syscall.RawSyscall(syscall.SYS_TIMERFD_CREATE, monotonic, flags, 0)
	if errno != 0 {
		return 0, fmt.Errorf("timerfd: %w", errno)
	}
	each := syscall.NsecToTimespec(int64(period))
	both := [2]syscall.Timespec{each, each}
	_, _, errno = syscall.RawSyscall6(syscall.SYS_TIMERFD_SETTIME, fd, 0, uintptr(unsafe.Pointer(&both)), 0, 0, 0)
	if errno != 0 {
		return 0, fmt.Errorf("timerfd: %w", errno)
	}
	return int(fd), nil
}

func quantiles(durations []time.Duration) map[string]float64 {
	sorted := append([]time.Duration(nil), durations...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i] < sorted[j] })
	at := func(share float64) float64 {
		index := min(len(sorted)-1, int(share*float64(len(sorted))))
		return float64(sorted[index]) / float64(time.Microsecond)
	}
	return map[string]float64{"p50": at(0.5), "p99": at(0.99), "p99.9": at(0.999), "max": at(1)}
}
