// kafkajs as a peer; the command line and the events are those of peer.py.
'use strict'

const path = require('node:path')

const peers = path.join(__dirname, '..', '..', '..', '..', '.peers', 'node', 'node_modules')
const { AssignerProtocol, Kafka, Partitioners, logLevel } = require(path.join(peers, 'kafkajs'))
const { version } = require(path.join(peers, 'kafkajs', 'package.json'))

function emit(event, fields = {}) {
  process.stdout.write(JSON.stringify({ event, at: Date.now() / 1000, ...fields }) + '\n')
}

function options() {
  const given = { 'commit-every': 20, max: 0, assignor: 'range', start: 0, acks: 'all' }
  const words = process.argv.slice(3)
  for (let i = 0; i < words.length; i += 2) given[words[i].slice(2)] = words[i + 1]
  return given
}

// kafkajs ships round-robin only. This is range as Kafka defines it: topic by topic, members in
// the order of their ids, the first ones get one partition more.
const range = ({ cluster }) => ({
  name: 'range',
  version: 0,
  async assign({ members }) {
    const subscribed = new Map()
    for (const { memberId, memberMetadata } of members) {
      for (const topic of AssignerProtocol.MemberMetadata.decode(memberMetadata).topics) {
        subscribed.set(topic, [...(subscribed.get(topic) || []), memberId])
      }
    }
    const assignments = new Map(members.map(({ memberId }) => [memberId, {}]))
    for (const [topic, memberIds] of subscribed) {
      memberIds.sort()
      const partitions = cluster
        .findTopicPartitionMetadata(topic)
        .map(metadata => metadata.partitionId)
        .sort((a, b) => a - b)
      const share = Math.floor(partitions.length / memberIds.length)
      const more = partitions.length % memberIds.length
      memberIds.forEach((memberId, i) => {
        const first = share * i + Math.min(i, more)
        const mine = partitions.slice(first, first + share + (i < more ? 1 : 0))
        if (mine.length > 0) assignments.get(memberId)[topic] = mine
      })
    }
    return [...assignments].map(([memberId, assignment]) => ({
      memberId,
      memberAssignment: AssignerProtocol.MemberAssignment.encode({ version: 0, assignment }),
    }))
  },
  protocol({ topics }) {
    const metadata = AssignerProtocol.MemberMetadata.encode({ version: 0, topics })
    return { name: 'range', metadata }
  },
})

function client(given) {
  return new Kafka({
    clientId: given['client-id'],
    brokers: given.bootstrap.split(','),
    logLevel: logLevel.ERROR,
    logCreator: () => ({ log, label }) => emit('log', { message: `${label} ${log.message}` }),
  })
}

async function consume(given) {
  const max = Number(given.max)
  const consumer = client(given).consumer({
    groupId: given.group,
    partitionAssigners: given.assignor === 'range' ? [range] : undefined,
    sessionTimeout: Number(given['session-timeout-ms'] || 6000),
    heartbeatInterval: Number(given['heartbeat-interval-ms'] || 500),
    maxWaitTimeInMs: 200,
  })
  let owned = []
  let seen = 0
  let ending = false
  const uncommitted = new Map()

  const gone = event => {
    if (owned.length > 0) emit(event, { partitions: owned })
    owned = []
    uncommitted.clear()
  }
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    gone('lost')
    for (const [topic, partitions] of Object.entries(payload.memberAssignment)) {
      for (const partition of partitions) owned.push([topic, partition])
    }
    emit('assigned', { partitions: owned, member_id: payload.memberId, leader: payload.isLeader })
  })
  consumer.on(consumer.events.REBALANCING, () => gone('revoked'))
  consumer.on(consumer.events.COMMIT_OFFSETS, ({ payload }) => {
    const offsets = []
    for (const { topic, partitions } of payload.topics) {
      for (const { partition, offset } of partitions) {
        offsets.push([topic, Number(partition), Number(offset)])
        if (uncommitted.get(`${topic} ${partition}`) <= Number(offset)) {
          uncommitted.delete(`${topic} ${partition}`)
        }
      }
    }
    emit('committed', { offsets })
  })
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    emit('error', { message: `crash: ${payload.error.message}` })
    if (!payload.restart) process.exit(1)
  })

  // A paused consumer finishes its batch and commits; then the partitions are given up.
  const end = async () => {
    if (ending) return
    ending = true
    const topics = new Set(owned.map(([topic]) => topic))
    consumer.pause([...topics].map(topic => ({ topic })))
    for (let waits = 0; uncommitted.size > 0 && waits < 100; waits++) {
      await new Promise(resolve => setTimeout(resolve, 20))
    }
    gone('revoked')
    await consumer.disconnect()
    emit('closed')
    process.exit(0)
  }
  process.on('SIGTERM', end)
  process.on('SIGINT', end)

  await consumer.connect()
  emit('ready', { version })
  await consumer.subscribe({ topics: given.topic.split(','), fromBeginning: true })
  await consumer.run({
    autoCommitThreshold: Number(given['commit-every']),
    eachMessage: async ({ topic, partition, message }) => {
      const key = message.key === null ? null : message.key.toString()
      emit('record', { topic, partition, offset: Number(message.offset), key })
      uncommitted.set(`${topic} ${partition}`, Number(message.offset) + 1)
      seen += 1
      if (max > 0 && seen === max) end()
    },
  })
}

async function produce(given) {
  const went = []
  const createPartitioner = () => {
    const choose = Partitioners.DefaultPartitioner()
    return asked => {
      const partition = choose(asked)
      went.push([partition, asked.message.key])
      return partition
    }
  }
  const producer = client(given).producer({ createPartitioner })
  await producer.connect()
  emit('ready', { version })
  const messages = []
  for (let n = Number(given.start); n < Number(given.start) + Number(given.count); n++) {
    messages.push({ key: `k${n}`, value: `v${n}` })
  }
  const acks = given.acks === 'all' ? -1 : Number(given.acks)
  const results = await producer.send({ topic: given.topic, acks, messages })
  const next = new Map(results.map(result => [result.partition, Number(result.baseOffset)]))
  for (const [partition, key] of went) {
    const offset = next.get(partition)
    next.set(partition, offset + 1)
    emit('produced', { topic: given.topic, partition, offset, key })
  }
  await producer.disconnect()
  emit('closed')
}

const run = process.argv[2] === 'consume' ? consume : produce
run(options()).catch(error => {
  emit('error', { message: String(error) })
  process.exit(1)
})
