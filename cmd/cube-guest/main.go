// The runtime must neither hold a cgroup file open nor look at it every second.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command cube-guest is process 1 of a sandbox. It is started without arguments
// from its own file system. "cube-guest init" is what it starts itself as process
// 1 of the users' namespaces; that never comes here, see package bareinit.
package main

import (
	"fmt"
	"os"

	"cubesandbox/guest/agent"
)

func main() {
	if err := agent.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "cube-guest:", err)
		os.Exit(1)
	}
}
