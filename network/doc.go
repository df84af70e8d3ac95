// Package network is what the rest of Cube needs of cube-network, the process
// that holds the user-space TCP/IP stack of every sandbox's NIC: a client, and
// the making of a NIC. The process itself is made of the folders below; nothing
// here links a network stack. See DESIGN.md.
package network
