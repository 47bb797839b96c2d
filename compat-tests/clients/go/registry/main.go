// Round trips of franz-go's client of schema registries: prints one line for each step, and ends at the first failure.
package main

import (
	"context"
	"encoding/json"
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
	evolve(ctx, c)
	serde(ctx, c)
}

// A second version of each format, behind a reference in each.
func evolve(ctx context.Context, c *sr.Client) {
	for _, x := range []struct {
		kind                      sr.SchemaType
		name, part, first, second string
	}{
		{sr.TypeAvro, "n.Part", `{"type":"record","name":"Part","namespace":"n","fields":[]}`,
			`{"type":"record","name":"W","namespace":"n","fields":[{"name":"p","type":"n.Part"}]}`,
			`{"type":"record","name":"W","namespace":"n","fields":[{"name":"p","type":"n.Part"},{"name":"q","type":"int","default":1}]}`},
		{sr.TypeJSON, "http://n/part.json", `{"$id":"http://n/part.json","type":"number"}`,
			`{"$id":"http://n/w.json","type":"object","properties":{"p":{"$ref":"part.json"}},"additionalProperties":false}`,
			`{"$id":"http://n/w.json","type":"object","properties":{"p":{"$ref":"part.json"},"q":{"type":"string"}},"additionalProperties":false}`},
		{sr.TypeProtobuf, "part.proto", `syntax = "proto3"; message Part { string n = 1; }`,
			`syntax = "proto3"; import "part.proto"; message W { Part p = 1; }`,
			`syntax = "proto3"; import "part.proto"; message W { Part p = 1; int32 q = 2; }`},
	} {
		part, whole := "part-"+x.kind.String(), "whole-"+x.kind.String()
		must(c.CreateSchema(ctx, part, sr.Schema{Schema: x.part, Type: x.kind}))
		references := []sr.SchemaReference{{Name: x.name, Subject: part, Version: 1}}
		for _, text := range []string{x.first, x.second, x.second} {
			made := must(c.CreateSchema(ctx, whole, sr.Schema{Schema: text, Type: x.kind, References: references}))
			found := must(c.SchemaByID(ctx, made.ID))
			fmt.Print(made.Version, found.Type, found.References, " ")
		}
		fmt.Println(must(c.SubjectVersions(ctx, whole)))
	}
}

type order struct {
	Price float64 `json:"price"`
}

// Values in the frames of the registry, with the index of a message for Protobuf.
func serde(ctx context.Context, c *sr.Client) {
	made := must(c.CreateSchema(ctx, "serde-json", sr.Schema{Schema: `{"type":"object","title":"Order"}`, Type: sr.TypeJSON}))
	proto := must(c.LookupSchema(ctx, "go-ref", must(c.SchemaByID(ctx, must(c.SchemaByVersion(ctx, "go-ref", 1)).ID))))
	var s sr.Serde
	s.Register(made.ID, order{}, sr.EncodeFn(json.Marshal), sr.DecodeFn(json.Unmarshal))
	s.Register(proto.ID, []byte(nil), sr.Index(0), sr.EncodeFn(func(v any) ([]byte, error) { return v.([]byte), nil }),
		sr.DecodeFn(func(b []byte, v any) error { *v.(*[]byte) = b; return nil }))
	var read order
	if err := s.Decode(must(s.Encode(order{2.5})), &read); err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
	var raw []byte
	if err := s.Decode(must(s.Encode([]byte{10, 0})), &raw); err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
	fmt.Println(read.Price, raw)
}
