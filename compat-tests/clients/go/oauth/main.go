// Lists the topics of a broker after an OAUTHBEARER login: oauth BOOTSTRAP, and the token on standard input.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
)

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func main() {
	token, err := io.ReadAll(os.Stdin)
	if err != nil {
		fail(err)
	}
	login := oauth.Auth{Token: strings.TrimSpace(string(token))}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.SASL(login.AsMechanism()),
		kgo.RequestRetries(0),
	)
	if err != nil {
		fail(err)
	}
	defer client.Close()
	within, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	request := kmsg.NewPtrMetadataRequest()
	answer, err := request.RequestWith(within, client)
	if err != nil {
		fail(err)
	}
	for _, topic := range answer.Topics {
		fmt.Println(*topic.Topic)
	}
}
