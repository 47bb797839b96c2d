// Writes the lines of standard input to a topic by TLS, and prints them as they are read again:
// tls BOOTSTRAP TOPIC AUTHORITY.pem [OWN.pem]
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func main() {
	trusted, err := os.ReadFile(os.Args[3])
	if err != nil {
		fail(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(trusted)
	if len(os.Args) > 4 {
		own, err := tls.LoadX509KeyPair(os.Args[4], os.Args[4])
		if err != nil {
			fail(err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.DialTLSConfig(config),
		kgo.ConsumeTopics(os.Args[2]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AllowAutoTopicCreation(),
	)
	if err != nil {
		fail(err)
	}
	defer client.Close()
	within, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	count := 0
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); count++ {
		record := &kgo.Record{Topic: os.Args[2], Value: []byte(lines.Text())}
		if err := client.ProduceSync(within, record).FirstErr(); err != nil {
			fail(err)
		}
	}
	for count > 0 {
		fetches := client.PollFetches(within)
		if err := within.Err(); err != nil {
			fail(err)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println(string(record.Value))
			count--
		})
	}
}
