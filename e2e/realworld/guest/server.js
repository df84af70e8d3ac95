// A server of node that keeps its connections; see e2e/programs/template/Server.java.
'use strict';
const crypto = require('crypto');
const http = require('http');

const clients = new Map();
let connections = 0;

const server = http.createServer((request, response) => {
  const digest = crypto.createHash('sha256');
  request.on('data', (piece) => digest.update(piece));
  request.on('end', () => {
    const s = request.socket, client = String(request.headers['x-client']);
    s.requests++;
    clients.set(client, (clients.get(client) || 0) + 1);
    response.writeHead(200, { 'X-Seq': `${s.number} ${s.requests} ${clients.get(client)}` });
    response.end(digest.digest('hex'));
  });
});
server.on('connection', (s) => {
  s.number = ++connections;
  s.requests = 0;
});
// Connections are idle while an image lies on the disk.
server.keepAliveTimeout = 86400_000; // milliseconds
server.requestTimeout = 0;
server.headersTimeout = 0;
server.listen(8080, '0.0.0.0');
