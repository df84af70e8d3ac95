// Command pack-agent makes the guest agent's file system from its program:
// pack-agent bin/cube-guest bin/cube-guest.erofs
package main

import (
	"context"
	"fmt"
	"os"

	"cubesandbox/template"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: pack-agent PROGRAM IMAGE")
		os.Exit(2)
	}
	if err := template.PackProgram(context.Background(), os.Args[1], "cube-guest", os.Args[2]); err != nil {
		fmt.Fprintf(os.Stderr, "pack-agent: %v\n", err)
		os.Exit(1)
	}
}
