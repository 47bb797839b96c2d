package main

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Transactions: on each connection a producer repeatedly writes one batch and commits. It uses the second version of
// the protocol: Produce itself adds its partition, and each end of a transaction gives the producer a new epoch. The
// coordinator is the broker itself, as there is only one.

const (
	concurrentTransactions = 51 // the previous transaction has not ended in every partition yet
	transactionKeyType     = 1
	retryPeriod            = time.Millisecond
	lookPeriod             = 5 * time.Millisecond
)

type transactor struct {
	*control
	name    string
	id      int64
	epoch   int16
	frame   []byte
	batchAt int
	errorAt int
}

// transact counts transactions as requests; the log must contain the acknowledged ones at the end, with a marker for
// each.
func transact(options produceOptions, count int, w *window) (result outcome, err error) {
	c, err := dial(options.address)
	if err != nil {
		return result, err
	}
	defer c.close()
	if err := c.needs("EndTxn", endTxnKey, endTxnVersion); err != nil {
		return result, err
	}
	if err := c.createTopic(options.topic, options.partitions, options.settings); err != nil {
		return result, err
	}
	defer func() {
		if failed := c.deleteTopic(options.topic); failed != nil && err == nil {
			err = failed
		}
	}()
	if _, err := c.topicID(options.topic, options.partitions); err != nil {
		return result, err
	}
	prepared := newTransactionalBatch(options.valueSize, count)
	transactors := make([]*transactor, options.connections)
	for i := range transactors {
		name := fmt.Sprintf("%s-%d", options.topic, i)
		transactors[i], err = newTransactor(options, name, int32(i%options.partitions), prepared)
		if err != nil {
			return result, err
		}
		defer transactors[i].close()
	}
	done, result, err := runTransactors(transactors, prepared, w)
	if err != nil {
		return result, err
	}
	return result, storedSoon(c, options, done*int64(prepared.records+1))
}

func newTransactor(options produceOptions, name string, partition int32, prepared batch) (*transactor, error) {
	c, err := dial(options.address)
	if err != nil {
		return nil, err
	}
	t := &transactor{control: c, name: name, errorAt: produceErrorAt(options.topic)}
	t.frame, t.batchAt = transactionalProduceRequest(name, options.topic, partition, prepared.bytes)
	if err := c.findTransactionCoordinator(name); err != nil {
		return nil, err
	}
	t.id, t.epoch, err = c.producerID(name)
	return t, err
}

// runTransactors runs all of them until the window closes, and returns the total number of transactions.
func runTransactors(transactors []*transactor, prepared batch, w *window) (int64, outcome, error) {
	var done atomic.Int64
	var isOver atomic.Bool
	ended := make(chan error, len(transactors))
	for _, t := range transactors {
		go func(t *transactor) {
			for !isOver.Load() {
				if err := t.once(); err != nil {
					ended <- err
					return
				}
				done.Add(1)
			}
			ended <- nil
		}(t)
	}
	total := func() totals {
		n := done.Load()
		return totals{n, n * int64(prepared.records), n * int64(len(prepared.bytes))}
	}
	running := len(transactors)
	var failed error
	for failed == nil {
		select {
		case failed = <-ended:
			running--
		case <-time.After(lookPeriod):
		}
		closes, err := w.closes(time.Now(), total())
		if err != nil {
			failed = err
		}
		if closes {
			break
		}
	}
	result, err := w.outcome(total())
	isOver.Store(true)
	for ; running > 0; running-- {
		if late := <-ended; failed == nil {
			failed = late
		}
	}
	if failed == nil {
		failed = err
	}
	return done.Load(), result, failed
}

// once is one transaction.
func (t *transactor) once() error {
	batch := t.frame[t.batchAt : len(t.frame)-3]
	setProducer(batch, t.id, t.epoch)
	setSequence(batch, 0)
	if err := patiently(t.write); err != nil {
		return err
	}
	return patiently(t.commit)
}

func patiently(do func() error) error {
	deadline := time.Now().Add(controlTimeout)
	for {
		err := do()
		if !isPassing(err) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(retryPeriod)
	}
}

func (t *transactor) write() error {
	return t.written(t.frame, 0, t.errorAt)
}

func (t *transactor) commit() error {
	r, err := t.ask(endTxnKey, endTxnVersion, true, func(w *writer) {
		w.compactString(t.name)
		w.int64(t.id)
		w.int16(t.epoch)
		w.int8(1)
		w.noTags()
	})
	if err != nil {
		return err
	}
	r.int32() // throttle time
	if code := r.int16(); code != 0 {
		return kafkaError{"EndTxn", code}
	}
	t.id, t.epoch = r.int64(), r.int16()
	return r.err
}

// findTransactionCoordinator makes the broker create the internal topic of transactions.
func (c *control) findTransactionCoordinator(name string) error {
	return patiently(func() error {
		r, err := c.ask(findCoordinatorKey, findCoordinatorVersion, false, func(w *writer) {
			w.string(name)
			w.int8(transactionKeyType)
		})
		if err != nil {
			return err
		}
		r.int32()
		if code := r.int16(); code != 0 {
			return kafkaError{"FindCoordinator", code}
		}
		return r.err
	})
}

// storedSoon waits for the last markers, which may be written after the response.
func storedSoon(c *control, options produceOptions, expected int64) error {
	deadline := time.Now().Add(controlTimeout)
	for {
		err := stored(c, options.topic, options.partitions, expected)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pollPeriod)
	}
}
