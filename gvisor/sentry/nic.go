package sentry

import (
	"net"
	"os"

	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"

	"cubesandbox/guest/agentapi"
)

// linkArgs is the guest's side of the link: the same addresses in every sandbox,
// and the gateway as its only neighbour.
func linkArgs(nic *os.File, restore bool) *boot.CreateLinksAndRoutesArgs {
	guest := agentapi.Guest
	network := net.IPNet{IP: net.IP(guest.Masked().Addr().AsSlice()), Mask: net.CIDRMask(guest.Bits(), 32)}
	a := &boot.CreateLinksAndRoutesArgs{
		LoopbackLinks: []boot.LoopbackLink{boot.DefaultLoopbackLink},
		FDBasedLinks: []boot.FDBasedLink{{
			Name:                 "eth0",
			InterfaceIndex:       2,
			MTU:                  agentapi.MTU,
			NumChannels:          1,
			ProcessorsPerChannel: 1,
			IsPacket:             []bool{false},
			GVisorGRO:            true,
			TXChecksumOffload:    true,
			RXChecksumOffload:    true,
			QDisc:                config.QDiscNone,
			Addresses:            []boot.IPWithPrefix{{Address: net.IP(guest.Addr().AsSlice()), PrefixLen: guest.Bits()}},
			LinkAddress:          net.HardwareAddr(agentapi.GuestMAC[:]),
			Neighbors:            []boot.Neighbor{{IP: net.IP(agentapi.Gateway.AsSlice()), HardwareAddr: net.HardwareAddr(agentapi.GatewayMAC[:])}},
			Routes:               []boot.Route{{Destination: network}},
		}},
		Defaultv4Gateway: boot.DefaultRoute{
			Name:  "eth0",
			Route: boot.Route{Destination: net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, Gateway: net.IP(agentapi.Gateway.AsSlice())},
		},
		IsRestore: restore,
	}
	a.FilePayload.Files = []*os.File{nic}
	return a
}
