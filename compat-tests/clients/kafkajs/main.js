// KafkaJS, told what to do line by line; clients/program.py describes the lines.
//
// Its consumer always wants a group. Without one, records are fetched with what stands below the consumer:
// the same cluster, connection, request and decoder, only without a subscription. Snappy, lz4 and zstd are plugged in,
// as KafkaJS wants it.
const readline = require('readline')
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require('kafkajs')
const Cluster = require('kafkajs/src/cluster')
const socketFactory = require('kafkajs/src/network/socketFactory')
const { createLogger } = require('kafkajs/src/loggers')
const loggerConsole = require('kafkajs/src/loggers/console')
const lz4 = require('lz4-napi')
const { ZstdCodec } = require('zstd-codec')

const PATIENCE_MS = 30000
const EARLIEST = -2
const LATEST = -1
const NO_CODE = -1
const TOPIC_ALREADY_EXISTS = 36
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer),
})
const zstd = new Promise(resolve => ZstdCodec.run(resolve))
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(new (await zstd).Simple().compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(new (await zstd).Streaming().decompress(buffer)),
})

const [bootstrap] = process.argv.slice(2)
const settings = {
  brokers: [bootstrap],
  clientId: 'kafkajs',
  connectionTimeout: 10000,
  retry: { retries: 3, initialRetryTime: 50 },
}
const kafka = new Kafka({ ...settings, logLevel: logLevel.NOTHING })
const admin = kafka.admin()
let lines

const bytes = text => (text === null ? null : Buffer.from(text, 'hex'))
const hex = buffer => (buffer === null ? null : buffer.toString('hex'))

// A header is a name with one value, or with a list of them.
function headersOf(pairs) {
  const headers = {}
  for (const [name, value] of pairs) (headers[name] ??= []).push(bytes(value))
  return headers
}

function pairsOf(headers) {
  return Object.entries(headers).flatMap(([name, values]) => [values].flat().map(value => [name, hex(value)]))
}

async function withCluster(topic, work) {
  const logger = createLogger({ level: logLevel.NOTHING, logCreator: loggerConsole })
  const cluster = new Cluster({ ...settings, logger, socketFactory: socketFactory(), allowAutoTopicCreation: false })
  await cluster.connect()
  try {
    await cluster.addTargetTopic(topic)
    return await work(cluster)
  } finally {
    await cluster.disconnect()
  }
}

const verbs = {
  async cluster() {
    const { brokers, controller } = await admin.describeCluster()
    return { brokers: brokers.map(({ nodeId, host, port }) => [nodeId, host, port]), controller }
  },

  topics: () => admin.listTopics(),

  async create_topic({ topic, partitions, config }) {
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }))
    const wanted = { topic, numPartitions: partitions, replicationFactor: 1, configEntries }
    // It answers with false, and only then: the topic is there already.
    const isNew = await admin.createTopics({ topics: [wanted] })
    if (!isNew) throw Object.assign(new Error('createTopics returned false'), { code: TOPIC_ALREADY_EXISTS })
  },

  delete_topic: ({ topic }) => admin.deleteTopics({ topics: [topic] }),

  async describe_topic({ topic }) {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return topics[0].partitions.map(p => [p.partitionId, p.leader, p.replicas, p.isr])
  },

  add_partitions: ({ topic, total }) => admin.createPartitions({ topicPartitions: [{ topic, count: total }] }),

  async describe_config({ kind, name }) {
    const type = kind === 'topic' ? ConfigResourceTypes.TOPIC : ConfigResourceTypes.BROKER
    const { resources } = await admin.describeConfigs({ resources: [{ type, name }] })
    return Object.fromEntries(resources[0].configEntries.map(entry => [entry.configName, entry.configValue]))
  },

  async alter_config({ topic, put }) {
    const configEntries = Object.entries(put).map(([name, value]) => ({ name, value }))
    await admin.alterConfigs({ resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configEntries }] })
  },

  async delete_records({ topic, partition, before }) {
    await admin.fetchTopicOffsets(topic) // it does not look for the leader by itself
    await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
  },

  async produce({ topic, records, codec, acks, idempotent }) {
    const producer = kafka.producer({ idempotent, createPartitioner: () => ({ message }) => message.partition })
    await producer.connect()
    try {
      const messages = records.map(([partition, key, value, headers, timestamp]) => ({
        partition,
        key: bytes(key),
        value: bytes(value),
        headers: headersOf(headers),
        timestamp: String(timestamp),
      }))
      const told = await producer.send({ topic, messages, acks, compression: CODECS[codec] })
      if (acks === 0) return []
      const next = new Map(told.map(({ partition, baseOffset }) => [partition, Number(baseOffset)]))
      return records.map(([partition]) => {
        const offset = next.get(partition)
        next.set(partition, offset + 1)
        return offset
      })
    } finally {
      await producer.disconnect()
    }
  },

  consume({ topic, partition, offset, count }) {
    return withCluster(topic, async cluster => {
      const [leader] = Object.keys(cluster.findLeaderForPartitions(topic, [partition]))
      const broker = await cluster.findBroker({ nodeId: leader })
      let next = offset === EARLIEST ? await verbs.offset_at({ topic, partition, timestamp: EARLIEST }) : offset
      const found = []
      const deadline = Date.now() + PATIENCE_MS
      while (found.length < count) {
        if (Date.now() > deadline) throw new Error(`only ${found.length} came`)
        const asked = { topic, partitions: [{ partition, fetchOffset: String(next), maxBytes: 1 << 20 }] }
        const { responses } = await broker.fetch({ topics: [asked], maxWaitTime: 200, isolationLevel: 0 })
        for (const message of responses[0].partitions[0].messages) {
          // A batch comes whole, also when only its end was asked for.
          if (Number(message.offset) < next || found.length === count) continue
          next = Number(message.offset) + 1
          const { key, value, headers, timestamp } = message
          found.push([Number(message.offset), hex(key), hex(value), pairsOf(headers), Number(timestamp)])
        }
      }
      return found
    })
  },

  async offset_at({ topic, partition, timestamp }) {
    if (timestamp === EARLIEST || timestamp === LATEST) {
      const told = (await admin.fetchTopicOffsets(topic)).find(one => one.partition === partition)
      return Number(timestamp === EARLIEST ? told.low : told.high)
    }
    const told = await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)
    return Number(told.find(one => one.partition === partition).offset)
  },

  // A member until its input ends. What was told of is committed before the next message is looked at.
  async group({ group, topic, session_ms: sessionTimeout }) {
    const retry = { retries: 100, initialRetryTime: 100, maxRetryTime: 1000 }
    const consumer = kafka.consumer({ groupId: group, sessionTimeout, heartbeatInterval: 1000, retry })
    const tell = event => console.log(JSON.stringify(event))
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => tell({ has: payload.memberAssignment[topic] ?? [] }))
    consumer.on(consumer.events.CRASH, ({ payload }) => console.error(payload.error))
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        tell({ saw: [[partition, Number(message.offset)]] })
        await consumer.commitOffsets([{ topic, partition, offset: String(Number(message.offset) + 1) }])
      },
    })
    await new Promise(resolve => lines.on('close', resolve))
    await consumer.disconnect()
  },
}

// The code may stand in what caused the error, or in the first of several.
function codeOf(error) {
  for (const inner of [error, error.cause, ...(error.errors ?? []), error.originalError]) {
    if (inner && typeof inner.code === 'number') return inner.code
  }
  return error.cause && error.cause !== error ? codeOf(error.cause) : NO_CODE
}

async function main() {
  await admin.connect()
  lines = readline.createInterface({ input: process.stdin })
  for await (const line of lines) {
    const command = JSON.parse(line)
    let answer
    try {
      answer = { done: (await verbs[command.do](command)) ?? null }
    } catch (error) {
      console.error(error)
      answer = { code: codeOf(error), said: String(error) }
    }
    console.log(JSON.stringify(answer))
  }
  await admin.disconnect()
}

main()
