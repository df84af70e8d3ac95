// Package fake is an honest engine without processes: everything of cube.Engine's
// contract that can be kept in memory, for tests of what stands above an engine.
//
// A Machine is the host: its sandboxes and images live as long as it does. Open
// gives an engine on it; another may be opened after Close and finds everything.
// A guest is a map from key to value (Machine.Guest) and the servers that Serve
// registers; the value of "memory" is lost in a cold boot, the others are its files. Hook stops, fails or cancels a verb at a named point.
//
// What it does not do is in Unsupported.
package fake

// Unsupported names what this engine cannot show, with the reason.
func Unsupported() map[string]string {
	return map[string]string{
		"page loading": "an image is in memory at once: there is no time in which it is read, and no device that fails",
		"guest limits": "there are no processes, memory or disk inside that could reach a limit",
	}
}
