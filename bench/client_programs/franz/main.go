// franz-go with typical use: writes records to a topic, or reads all records of a topic, as fast as possible.
//
//	franz produce ADDRESS TOPIC RECORDS SIZE
//	franz consume ADDRESS TOPIC RECORDS SIZE
//
// It prints the duration in seconds. Its settings are its defaults, except that compression is off, as it is by default
// in the other clients, so that the comparison is between brokers.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const patience = 120 * time.Second

func main() {
	if len(os.Args) != 6 {
		fail(fmt.Errorf("produce or consume, an address, a topic, how many records, and of what size?"))
	}
	records, _ := strconv.Atoi(os.Args[4])
	size, _ := strconv.Atoi(os.Args[5])
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	run := consume
	if os.Args[1] == "produce" {
		run = produce
	}
	seconds, err := run(ctx, os.Args[2], os.Args[3], records, size)
	if err != nil {
		fail(err)
	}
	fmt.Println(seconds)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func produce(ctx context.Context, address, topic string, records, size int) (float64, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(address),
		kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		return 0, err
	}
	value := make([]byte, size)
	for i := range value {
		value[i] = byte('a' + i%26)
	}
	var failed atomic.Pointer[error]
	begun := time.Now()
	for i := 0; i < records; i++ {
		client.Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return 0, err
	}
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return time.Since(begun).Seconds(), nil
}

func consume(ctx context.Context, address, topic string, records, size int) (float64, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(address),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	begun := time.Now()
	for seen := 0; seen < records; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return 0, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if len(record.Value) == size {
				seen++
			}
		})
	}
	return time.Since(begun).Seconds(), nil
}
