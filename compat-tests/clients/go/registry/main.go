// Round trips of franz-go's client of schema registries: prints one line for each step, and ends at the first failure.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/sr"
)

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
	return v
}

func main() {
	ctx := context.Background()
	c := must(sr.NewClient(sr.URLs(os.Args[1])))
	a := `{"type":"record","name":"A","fields":[{"name":"x","type":"int"}]}`
	s := must(c.CreateSchema(ctx, "go-avro", sr.Schema{Schema: a}))
	fmt.Println(s.ID, s.Version, must(c.SchemaByID(ctx, s.ID)).Schema)
	p := must(c.CreateSchema(ctx, "go-proto", sr.Schema{Schema: `syntax = "proto3"; message P { string n = 1; }`, Type: sr.TypeProtobuf}))
	r := must(c.CreateSchema(ctx, "go-ref", sr.Schema{Schema: `syntax = "proto3"; import "p.proto"; message Q { P p = 1; }`, Type: sr.TypeProtobuf, References: []sr.SchemaReference{{Name: "p.proto", Subject: "go-proto", Version: 1}}}))
	j := must(c.CreateSchema(ctx, "go-json", sr.Schema{Schema: `{"type":"object"}`, Type: sr.TypeJSON}))
	fmt.Println(p.ID, r.ID, j.ID, must(c.Subjects(ctx)))
	fmt.Println(must(c.CheckCompatibility(ctx, "go-avro", -1, sr.Schema{Schema: `"int"`})).Is)
	for _, x := range c.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatFull}, "go-avro") {
		fmt.Println(x.Level, x.Err)
	}
	fmt.Println(must(c.LookupSchema(ctx, "go-avro", sr.Schema{Schema: a})).Version, must(c.SchemaReferences(ctx, "go-proto", 1))[0].ID)
	fmt.Println(must(c.DeleteSubject(ctx, "go-json", sr.SoftDelete)), must(c.DeleteSubject(ctx, "go-json", sr.HardDelete)))
	h := sr.ConfluentHeader{}
	b := must(h.AppendEncode(nil, s.ID, nil))
	fmt.Println(b)
}
