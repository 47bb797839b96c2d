// Logs in by SASL, writes a record and reads it again: login.js BOOTSTRAP MECHANISM USER TOPIC [CA-FILE [OWN-FILE]], and
// the password, or the bearer token of OAUTHBEARER, on standard input. With a file of a CA it speaks TLS, with a file of
// its own it has a certificate; the mechanism TLS is no login. It prints the value that it has read.
const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, mechanism, username, topic, authority, own] = process.argv.slice(2)
const password = fs.readFileSync(0, 'utf8').trim()

function tls() {
  if (!authority) return false
  const identity = own ? { cert: fs.readFileSync(own, 'utf8'), key: fs.readFileSync(own, 'utf8') } : {}
  return { ca: [fs.readFileSync(authority, 'utf8')], ...identity }
}

function sasl() {
  if (mechanism === 'TLS') return undefined
  if (mechanism === 'OAUTHBEARER') {
    return { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: password }) }
  }
  return { mechanism: mechanism.toLowerCase(), username, password }
}

async function main() {
  const kafka = new Kafka({
    brokers: [bootstrap],
    clientId: 'kafkajs',
    logLevel: logLevel.NOTHING,
    ssl: tls(),
    sasl: sasl(),
    retry: { retries: 3, initialRetryTime: 50 },
  })
  const producer = kafka.producer()
  await producer.connect()
  await producer.send({ topic, messages: [{ value: 'value' }] })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const value = await new Promise((resolve, reject) => {
    consumer.run({ eachMessage: async ({ message }) => resolve(message.value.toString()) }).catch(reject)
    setTimeout(() => reject(new Error('no record came')), 30000).unref()
  })
  await consumer.disconnect()
  console.log(value)
}

main().catch(error => {
  console.error(error.message)
  process.exit(1)
})
