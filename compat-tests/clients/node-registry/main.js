// Round trips of the two clients of Node on a schema registry: all formats, with references and a second version.
//
// Prints one line of JSON for each step; the first failure ends the program. What one client has written, the other
// reads where their frames are the same: KafkaJS leaves out the indexes of Protobuf messages.
const kafkajs = require('@kafkajs/confluent-schema-registry')
const confluent = require('@confluentinc/schemaregistry')

const [url] = process.argv.slice(2)
const AVRO_REF = { type: 'record', name: 'Item', namespace: 'shop', fields: [{ name: 'name', type: 'string' }] }
const avro = (...more) => JSON.stringify({
  type: 'record', name: 'Order', namespace: 'shop',
  fields: [{ name: 'id', type: 'int' }, { name: 'item', type: 'shop.Item' }, ...more],
})
const NOTE = { name: 'note', type: ['null', 'string'], default: null }
const JSON_REF = JSON.stringify({ $id: 'http://shop/money.json', type: 'number' })
const json = (...more) => JSON.stringify({
  $schema: 'http://json-schema.org/draft-07/schema#', $id: 'http://shop/order.json', title: 'Order', type: 'object',
  properties: { price: { $ref: 'http://shop/money.json' }, ...Object.fromEntries(more.map(name => [name, { type: 'string' }])) },
  additionalProperties: false,
})
const PROTO_REF = 'syntax = "proto3"; package shop; message Item { string name = 1; }'
const proto = more => `syntax = "proto3"; package shop; import "shop/item.proto";
message Order { int32 id = 1; Item item = 2; ${more} }`
const reference = (name, subject) => [{ name, subject, version: 1 }]
const RAW = { AVRO: [JSON.stringify(AVRO_REF), 'shop.Item'], JSON: [JSON_REF, 'http://shop/money.json'], PROTOBUF: [PROTO_REF, 'shop/item.proto'] }
const FIRST = { AVRO: avro(), JSON: json(), PROTOBUF: proto('') }
// A field more: a change that is BACKWARD in Avro and Protobuf, and in a closed JSON Schema if the field is optional.
const SECOND = { AVRO: avro(NOTE), JSON: json('note'), PROTOBUF: proto('string note = 3;') }
const WRONG = { AVRO: avro({ name: 'must', type: 'int' }), JSON: json().replace('price', 'cost'), PROTOBUF: proto('').replace('int32 id', 'string id') }
const VALUES = { AVRO: { id: 7, item: { name: 'x' } }, JSON: { price: 2.5 }, PROTOBUF: { id: 7, item: { name: 'x' } } }

const say = (...words) => console.log(JSON.stringify(words))
const plain = value => JSON.parse(JSON.stringify(value, (key, each) => (key.startsWith('$') ? undefined : each)))

async function refused(promise) {
  try {
    await promise
    return null
  } catch (error) {
    return error.status || error.response?.status || error.cause?.status || error.name
  }
}

async function byKafkajs() {
  const registry = new kafkajs.SchemaRegistry({ host: url })
  const buffers = {}
  for (const type of ['AVRO', 'JSON', 'PROTOBUF']) {
    const [raw, name] = RAW[type]
    const [part, subject] = [`kafkajs-${type}-part`, `kafkajs-${type}-value`]
    await registry.register({ type, schema: raw }, { subject: part })
    const schema = text => ({ type, schema: text, references: reference(name, part) })
    const first = await registry.register(schema(FIRST[type]), { subject })
    const again = await registry.register(schema(FIRST[type]), { subject })
    buffers[type] = await registry.encode(first.id, VALUES[type])
    const second = await registry.register(schema(SECOND[type]), { subject })
    const read = plain(await registry.decode(buffers[type]))
    const status = await refused(registry.register(schema(WRONG[type]), { subject }))
    say('kafkajs', type, again.id === first.id, second.id > first.id, read, status)
    say('kafkajs', type, 'latest', (await registry.getLatestSchemaId(subject)) === second.id)
  }
  return [registry, buffers]
}

async function byConfluent() {
  const client = new confluent.SchemaRegistryClient({ baseURLs: [url] })
  const buffers = {}
  const kinds = {
    AVRO: [confluent.AvroSerializer, confluent.AvroDeserializer],
    JSON: [confluent.JsonSerializer, confluent.JsonDeserializer],
  }
  for (const type of ['AVRO', 'JSON', 'PROTOBUF']) {
    const [raw, name] = RAW[type]
    const [topic, part] = [`confluent-${type}`, `confluent-${type}-part`]
    const subject = `${topic}-value`
    await client.register(part, { schemaType: type, schema: raw })
    const schema = text => ({ schemaType: type, schema: text, references: reference(name, part) })
    const first = await client.register(subject, schema(FIRST[type]))
    const found = await client.getId(subject, schema(FIRST[type]))
    let read = null
    if (type in kinds) {
      const [Serializer, Deserializer] = kinds[type]
      const serializer = new Serializer(client, confluent.SerdeType.VALUE, { useLatestVersion: true })
      buffers[type] = await serializer.serialize(topic, VALUES[type])
      read = plain(await new Deserializer(client, confluent.SerdeType.VALUE, {}).deserialize(topic, buffers[type]))
    }
    const second = await client.register(subject, schema(SECOND[type]))
    const may = await client.testSubjectCompatibility(subject, schema(WRONG[type]))
    const status = await refused(client.register(subject, schema(WRONG[type])))
    say('confluent', type, found === first, second > first, read, may, status)
    const metadata = await client.getSchemaMetadata(subject, 2)
    say('confluent', type, await client.getAllVersions(subject), metadata.references)
    const gone = `${subject}-gone`
    await client.register(gone, schema(FIRST[type]))
    await client.updateCompatibility(gone, 'FULL')
    say('confluent', type, await client.getCompatibility(gone), await client.deleteSubject(gone), await client.deleteSubject(gone, true))
  }
  return [client, buffers]
}

// Messages of Confluent's client are made by @bufbuild/protobuf from descriptors.
async function protobufByConfluent(client) {
  const { create, createMutableRegistry, createFileRegistry, fromBinary } = require('@bufbuild/protobuf')
  const { FileDescriptorSetSchema } = require('@bufbuild/protobuf/wkt')
  const set = fromBinary(FileDescriptorSetSchema, Buffer.from(process.argv[3], 'base64'))
  const files = createFileRegistry(set)
  const order = files.getMessage('shop.Order')
  const registry = createMutableRegistry(order, files.getMessage('shop.Item'))
  const serializer = new confluent.ProtobufSerializer(client, confluent.SerdeType.VALUE, { autoRegisterSchemas: true, registry })
  const data = await serializer.serialize('confluent-proto', create(order, { id: 7, item: create(files.getMessage('shop.Item'), { name: 'x' }) }))
  const read = await new confluent.ProtobufDeserializer(client, confluent.SerdeType.VALUE, {}).deserialize('confluent-proto', data)
  say('confluent', 'PROTOBUF', read.id, read.item.name, await client.getAllVersions('confluent-proto-value'))
  say('confluent', 'PROTOBUF', (await client.getLatestSchemaMetadata('confluent-proto-value')).references)
}

async function main() {
  const [one, written] = await byKafkajs()
  const [other, alsoWritten] = await byConfluent()
  await protobufByConfluent(other)
  for (const type of ['AVRO', 'JSON']) {
    const Deserializer = { AVRO: confluent.AvroDeserializer, JSON: confluent.JsonDeserializer }[type]
    say('across', type, plain(await new Deserializer(other, confluent.SerdeType.VALUE, {}).deserialize(`kafkajs-${type}`, written[type])))
    say('across', type, plain(await one.decode(alsoWritten[type])))
  }
}

main().catch(error => {
  console.error(error)
  process.exit(1)
})
