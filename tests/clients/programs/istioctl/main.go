// istioctl as Istio builds it: its commands, without changes.
package main

import (
	"fmt"
	"os"

	"istio.io/istio/istioctl/cmd"
	"istio.io/istio/pkg/log"
)

func main() {
	if err := cmd.ConfigAndEnvProcessing(); err != nil {
		fmt.Fprintf(os.Stderr, "Could not initialize: %v\n", err)
		os.Exit(cmd.GetExitCode(err))
	}
	root := cmd.GetRootCmd(os.Args[1:])
	log.EnableKlogWithCobra()
	if err := root.Execute(); err != nil {
		os.Exit(cmd.GetExitCode(err))
	}
}
