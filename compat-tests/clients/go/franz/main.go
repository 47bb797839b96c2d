// The franz-go client, told what to do line by line.
package main

import (
	"context"
	"errors"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"trioka/compat/clients/script"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acknowledgements = map[int16]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck(), -1: kgo.AllISRAcks()}

type client struct {
	bootstrap string
	admin     *kadm.Client
}

func main() {
	bootstrap := os.Args[1]
	connection, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		panic(err)
	}
	defer connection.Close()
	c := &client{bootstrap, kadm.NewClient(connection)}
	script.Run(map[string]script.Obey{
		"cluster":         patiently(c.cluster),
		"topics":          patiently(c.topics),
		"create_topic":    patiently(c.createTopic),
		"delete_topic":    patiently(c.deleteTopic),
		"describe_topic":  patiently(c.describeTopic),
		"add_partitions":  patiently(c.addPartitions),
		"describe_config": patiently(c.describeConfig),
		"alter_config":    patiently(c.alterConfig),
		"delete_records":  patiently(c.deleteRecords),
		"produce":         patiently(c.produce),
		"consume":         patiently(c.consume),
		"offset_at":       patiently(c.offsetAt),
		"group":           c.group,
		"copy":            c.copy,
	}, codeOf)
}

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

func patiently(obey func(context.Context, *script.Command) (any, error)) script.Obey {
	return func(command *script.Command) (any, error) {
		ctx, cancel := context.WithTimeout(context.Background(), script.Patience)
		defer cancel()
		return obey(ctx, command)
	}
}

func codeOf(err error) int {
	var told *kerr.Error
	if errors.As(err, &told) {
		return int(told.Code)
	}
	return script.NoCode
}

func (c *client) cluster(ctx context.Context, _ *script.Command) (any, error) {
	metadata, err := c.admin.BrokerMetadata(ctx)
	brokers := [][]any{}
	for _, broker := range metadata.Brokers {
		brokers = append(brokers, []any{broker.NodeID, broker.Host, broker.Port})
	}
	return map[string]any{"brokers": brokers, "controller": metadata.Controller}, err
}

func (c *client) topics(ctx context.Context, _ *script.Command) (any, error) {
	told, err := c.admin.ListTopics(ctx)
	return told.Names(), err
}

func (c *client) createTopic(ctx context.Context, command *script.Command) (any, error) {
	config := map[string]*string{}
	for key, value := range command.Config {
		config[key] = &value
	}
	_, err := c.admin.CreateTopic(ctx, command.Partitions, -1, config, command.Topic)
	return nil, err
}

func (c *client) deleteTopic(ctx context.Context, command *script.Command) (any, error) {
	_, err := c.admin.DeleteTopic(ctx, command.Topic)
	return nil, err
}

func (c *client) describeTopic(ctx context.Context, command *script.Command) (any, error) {
	told, err := c.admin.ListTopics(ctx, command.Topic)
	if err == nil {
		err = told[command.Topic].Err
	}
	partitions := [][]any{}
	for _, p := range told[command.Topic].Partitions.Sorted() {
		partitions = append(partitions, []any{p.Partition, p.Leader, p.Replicas, p.ISR})
	}
	return partitions, err
}

func (c *client) addPartitions(ctx context.Context, command *script.Command) (any, error) {
	told, err := c.admin.UpdatePartitions(ctx, int(command.Total), command.Topic)
	if err == nil {
		err = told.Error()
	}
	return nil, err
}

func (c *client) describeConfig(ctx context.Context, command *script.Command) (any, error) {
	var told kadm.ResourceConfigs
	var err error
	if command.Kind == "topic" {
		told, err = c.admin.DescribeTopicConfigs(ctx, command.Name)
	} else {
		id, _ := strconv.Atoi(command.Name)
		told, err = c.admin.DescribeBrokerConfigs(ctx, int32(id))
	}
	keys := map[string]*string{}
	for _, resource := range told {
		err = errors.Join(err, resource.Err)
		for _, config := range resource.Configs {
			keys[config.Key] = config.Value
		}
	}
	return keys, err
}

func (c *client) alterConfig(ctx context.Context, command *script.Command) (any, error) {
	changes := []kadm.AlterConfig{}
	for key, value := range command.Put {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: &value})
	}
	for _, key := range command.Drop {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: key})
	}
	told, err := c.admin.AlterTopicConfigs(ctx, changes, command.Topic)
	for _, one := range told {
		err = errors.Join(err, one.Err)
	}
	return nil, err
}

func (c *client) deleteRecords(ctx context.Context, command *script.Command) (any, error) {
	before := kadm.Offsets{}
	before.Add(kadm.Offset{Topic: command.Topic, Partition: command.Partition, At: command.Before})
	told, err := c.admin.DeleteRecords(ctx, before)
	if err == nil {
		err = told.Error()
	}
	return nil, err
}

func (c *client) produce(ctx context.Context, command *script.Command) (any, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(c.bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[command.Codec]),
		kgo.RequiredAcks(acknowledgements[command.Acks]),
		kgo.ProducerLinger(20 * time.Millisecond),
		kgo.AllowAutoTopicCreation(),
		kgo.MetadataMinAge(50 * time.Millisecond), // it asks again for a topic that is being made
	}
	if !command.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	producer, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	records := make([]*kgo.Record, len(command.Records))
	for i, record := range command.Records {
		records[i] = &kgo.Record{
			Topic:     command.Topic,
			Partition: int32(record.Place),
			Key:       record.Key,
			Value:     record.Value,
			Timestamp: time.UnixMilli(record.Timestamp),
		}
		for _, header := range record.Headers {
			records[i].Headers = append(records[i].Headers, kgo.RecordHeader{Key: header.Name, Value: header.Value})
		}
	}
	if err := producer.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	offsets := []int64{}
	for _, record := range records {
		if command.Acks != 0 {
			offsets = append(offsets, record.Offset)
		}
	}
	return offsets, nil
}

func (c *client) consume(ctx context.Context, command *script.Command) (any, error) {
	start := kgo.NewOffset().AtStart()
	if command.Offset != script.Earliest {
		start = kgo.NewOffset().At(command.Offset)
	}
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(c.bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{command.Topic: {command.Partition: start}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	found := []script.Record{}
	for len(found) < command.Count {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) { found = append(found, read(record)) })
	}
	sort.SliceStable(found, func(i, j int) bool { return found[i].Place < found[j].Place })
	return found[:command.Count], nil
}

func read(record *kgo.Record) script.Record {
	row := script.Record{
		Place:     record.Offset,
		Key:       record.Key,
		Value:     record.Value,
		Timestamp: record.Timestamp.UnixMilli(),
	}
	for _, header := range record.Headers {
		row.Headers = append(row.Headers, script.Header{Name: header.Key, Value: header.Value})
	}
	return row
}

func (c *client) offsetAt(ctx context.Context, command *script.Command) (any, error) {
	var told kadm.ListedOffsets
	var err error
	switch command.Timestamp {
	case script.Earliest:
		told, err = c.admin.ListStartOffsets(ctx, command.Topic)
	case script.Latest:
		told, err = c.admin.ListEndOffsets(ctx, command.Topic)
	default:
		told, err = c.admin.ListOffsetsAfterMilli(ctx, command.Timestamp, command.Topic)
	}
	if err != nil {
		return nil, err
	}
	if err := told.Error(); err != nil {
		return nil, err
	}
	offset, _ := told.Lookup(command.Topic, command.Partition)
	return offset.Offset, nil
}

// group is a member until its input ends. What was told of is committed before the next is fetched.
func (c *client) group(command *script.Command) (any, error) {
	member := &script.Member{}
	gains := func(_ context.Context, _ *kgo.Client, gained map[string][]int32) { member.Gains(gained[command.Topic]) }
	loses := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { member.Loses(lost[command.Topic]) }
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(c.bootstrap),
		kgo.ConsumerGroup(command.Group),
		kgo.ConsumeTopics(command.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(balancers[command.Assignor]),
		kgo.SessionTimeout(time.Duration(command.SessionMs)*time.Millisecond),
		kgo.HeartbeatInterval(time.Second),
		kgo.DisableAutoCommit(),
		kgo.OnPartitionsAssigned(gains),
		kgo.OnPartitionsRevoked(loses),
		kgo.OnPartitionsLost(loses),
		kgo.BlockRebalanceOnPoll(),
	)
	if err != nil {
		return nil, err
	}
	left := member.Left()
	for left.Err() == nil {
		fetches := consumer.PollFetches(left)
		rows := [][2]int64{}
		fetches.EachRecord(func(record *kgo.Record) {
			rows = append(rows, [2]int64{int64(record.Partition), record.Offset})
		})
		if len(rows) > 0 {
			member.Saw(rows)
			// If it fails the records are told of once more, perhaps by another.
			commit, cancel := context.WithTimeout(context.Background(), script.Patience)
			_ = consumer.CommitRecords(commit, fetches.Records()...)
			cancel()
		}
		consumer.AllowRebalance()
	}
	consumer.CloseAllowingRebalance()
	return nil, nil
}
