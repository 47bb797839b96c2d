// A client of the gateway from generated stubs: every call once, on the address that it is given.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	v1 "gateway/client/v1"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const topic = "go-program"

func must[T any](answer T, err error) T {
	if err != nil {
		fail(err.Error())
	}
	return answer
}

func fail(words ...any) {
	fmt.Fprintln(os.Stderr, words...)
	os.Exit(1)
}

func check(holds bool, what string) {
	if !holds {
		fail("wrong:", what)
	}
}

func main() {
	connection := must(grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials())))
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	admin, log := v1.NewAdminServiceClient(connection), v1.NewLogServiceClient(connection)
	must(admin.CreateTopic(ctx, &v1.CreateTopicRequest{Topic: topic, Partitions: 2}))
	records := []*v1.Record{
		{Key: []byte("k"), Value: []byte("v"), Headers: []*v1.Header{{Key: "h"}}},
		{Key: []byte{}, Value: []byte{}},
		{},
	}
	writeAndRead(ctx, log, records)
	produceStream(ctx, log)
	subscribe(ctx, log)
	refusals(ctx, log)
	administer(ctx, admin)
	fmt.Println("all calls passed")
}

func writeAndRead(ctx context.Context, log v1.LogServiceClient, records []*v1.Record) {
	zero := int32(0)
	written := must(log.Produce(ctx, &v1.ProduceRequest{Topic: topic, Partition: &zero, Records: records}))
	check(len(written.Positions) == 3 && written.Positions[2].Offset == 2, "positions")
	stream := must(log.Consume(ctx, &v1.ConsumeRequest{Topic: topic, Partitions: []int32{0}}))
	var found []*v1.Record
	for {
		message, err := stream.Recv()
		if err == io.EOF {
			break
		}
		found = append(found, must(message, err).Records...)
	}
	check(len(found) == 3, "consumed")
	for at, record := range found {
		want := records[at]
		check(bytes.Equal(record.Key, want.Key) && (record.Key == nil) == (want.Key == nil), "key")
		check(bytes.Equal(record.Value, want.Value) && (record.Value == nil) == (want.Value == nil), "value")
	}
	check(found[0].Headers[0].Key == "h" && found[0].Headers[0].Value == nil, "headers")
	read := must(log.Read(ctx, &v1.ReadRequest{Topic: topic, Partition: &zero, What: &v1.ReadRequest_Offset{Offset: 1}}))
	check(read.Record.Offset == 1 && read.HighWatermark >= 3, "read")
}

func produceStream(ctx context.Context, log v1.LogServiceClient) {
	one := int32(1)
	stream := must(log.ProduceStream(ctx))
	for number := uint64(0); number < 10; number++ {
		request := &v1.ProduceRequest{
			Topic: topic, Partition: &one, Records: []*v1.Record{{Value: []byte("x")}},
			Producer: &v1.Producer{Name: "go", Sequence: number / 2},
		}
		if err := stream.Send(&v1.ProduceStreamRequest{Id: number, Request: request}); err != nil {
			fail(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		fail(err)
	}
	for number := uint64(0); number < 10; number++ {
		answer := must(stream.Recv())
		check(answer.Id == number && answer.GetWritten() != nil, "an answer of the stream")
		check(answer.GetWritten().Duplicate == (number%2 == 1), "each sequence is sent twice and written once")
	}
}

func subscribe(ctx context.Context, log v1.LogServiceClient) {
	stream := must(log.Subscribe(ctx))
	join := &v1.Join{Group: "go", Topics: []string{topic}}
	for _, order := range []*v1.SubscribeRequest{
		{Order: &v1.SubscribeRequest_Join{Join: join}},
		{Order: &v1.SubscribeRequest_Credit{Credit: 8}},
	} {
		if err := stream.Send(order); err != nil {
			fail(err)
		}
	}
	for received := 0; received < 8; {
		delivery := must(stream.Recv()).GetDelivery()
		if delivery == nil {
			continue
		}
		received += len(delivery.Records)
		last := delivery.Records[len(delivery.Records)-1]
		done := &v1.Acknowledge{Topic: topic, Partition: delivery.Partition, Offset: last.Offset}
		if err := stream.Send(&v1.SubscribeRequest{Order: &v1.SubscribeRequest_Acknowledge{Acknowledge: done}}); err != nil {
			fail(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		fail(err)
	}
	for {
		if _, err := stream.Recv(); err == io.EOF {
			return
		} else if err != nil {
			fail(err)
		}
	}
}

func refusals(ctx context.Context, log v1.LogServiceClient) {
	_, err := log.Produce(ctx, &v1.ProduceRequest{Topic: "nowhere", Records: []*v1.Record{{}}})
	found := status.Convert(err)
	check(found.Code() == codes.NotFound && len(found.Details()) == 1, "a refusal has a code and a detail")
	failure, is := found.Details()[0].(*v1.Failure)
	check(is && failure.Name == "UNKNOWN_TOPIC_OR_PARTITION" && failure.KafkaCode == 3, "the detail is a Failure")
}

func administer(ctx context.Context, admin v1.AdminServiceClient) {
	must(admin.ListTopics(ctx, &v1.ListTopicsRequest{}))
	described := must(admin.DescribeTopic(ctx, &v1.DescribeTopicRequest{Topic: topic}))
	check(len(described.Partitions) == 2 && len(described.TopicId) == 16, "a described topic")
	offsets := must(admin.ListOffsets(ctx, &v1.ListOffsetsRequest{Topic: topic}))
	check(offsets.Partitions[0].End == 3, "the end of a partition")
	must(admin.ListGroups(ctx, &v1.ListGroupsRequest{}))
	must(admin.DescribeGroup(ctx, &v1.DescribeGroupRequest{Group: "go"}))
	set := []*v1.GroupOffset{{Topic: topic, Partition: 0, Offset: 1}, {Topic: topic, Partition: 1, Offset: 1}}
	must(admin.CommitGroupOffsets(ctx, &v1.CommitGroupOffsetsRequest{Group: "go-offsets", Offsets: set}))
	listed := must(admin.ListGroupOffsets(ctx, &v1.ListGroupOffsetsRequest{Group: "go-offsets"}))
	check(len(listed.Offsets) == 2, "offsets of a group")
	gone := []*v1.TopicPartition{{Topic: topic, Partition: 0}}
	must(admin.DeleteGroupOffsets(ctx, &v1.DeleteGroupOffsetsRequest{Group: "go-offsets", Partitions: gone}))
	must(admin.DeleteGroup(ctx, &v1.DeleteGroupRequest{Group: "go-offsets"}))
	must(admin.DeleteTopic(ctx, &v1.DeleteTopicRequest{Topic: topic}))
}
