package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"trioka/compat/clients/script"
)

// copy is a copier until its input ends; clients/copier.py describes the lines. What is not committed is read again:
// the session sees to that.
func (c *client) copy(command *script.Command) (any, error) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(c.bootstrap),
		kgo.TransactionalID(command.TransactionalID),
		kgo.TransactionTimeout(time.Duration(command.TimeoutMs)*time.Millisecond),
		kgo.ConsumerGroup(command.Group),
		kgo.ConsumeTopics(command.Source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(time.Duration(command.SessionMs)*time.Millisecond),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return nil, err
	}
	left := (&script.Member{}).Left()
	for number := 0; left.Err() == nil; {
		began := time.Now().UnixMilli()
		fetches := session.PollRecords(left, command.Count)
		if left.Err() != nil {
			break
		}
		fetches.EachError(func(_ string, _ int32, err error) { fmt.Fprintln(os.Stderr, err) })
		if records := fetches.Records(); len(records) > 0 {
			if err := copyAll(session, command, records, number, began); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			number++
		}
	}
	session.Close()
	return nil, nil
}

func copyAll(
	session *kgo.GroupTransactSession, command *script.Command, records []*kgo.Record, number int, began int64,
) error {
	read := [][3]any{}
	for _, record := range records {
		read = append(read, [3]any{record.Partition, record.Offset, string(record.Value)})
	}
	tell(map[string]any{"began": began, "read": read})
	if err := session.Begin(); err != nil {
		return err
	}
	ctx := context.Background()
	sent := []*kgo.Record{}
	first := kgo.AbortingFirstErrPromise(session.Client())
	for _, record := range records {
		value := fmt.Sprintf("%s|%s|%d", record.Value, command.Name, number)
		copied := &kgo.Record{
			Topic: command.Target, Partition: record.Partition, Key: record.Key, Value: []byte(value),
		}
		sent = append(sent, copied)
		session.Produce(ctx, copied, first.Promise())
	}
	if err := session.Client().Flush(ctx); err != nil {
		return err
	}
	isGood := first.Err() == nil
	if isGood && number%command.AbortEvery == command.AbortEvery-1 {
		isGood = false
	}
	if isGood {
		tell(map[string]any{"asks": "commit"})
	}
	committed, err := session.End(ctx, kgo.TransactionEndTry(isGood))
	if err != nil {
		return err
	}
	if !committed {
		tell(map[string]any{"ended": "fail", "at": time.Now().UnixMilli()})
		return nil
	}
	offsets := []int64{}
	for _, record := range sent {
		offsets = append(offsets, record.Offset)
	}
	tell(map[string]any{"ended": "ok", "at": time.Now().UnixMilli(), "offsets": offsets})
	return nil
}

func tell(line map[string]any) { _ = json.NewEncoder(os.Stdout).Encode(line) }
