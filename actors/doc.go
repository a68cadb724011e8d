// Package actors is the runtime: it gives the machines of a job a life on a protoactor system, and
// carries their messages within a process by reference and between processes over NATS.
//
// One process is one [Node]. A run in one process:
//
//	node, err := actors.NewNode(actors.Options{Job: job.Name, Placement: plan.Actors, Observer: observer})
//	for each actor of the plan:
//		err = node.Spawn(actors.Actor{Machine: m, Executor: e, Device: d, Stream: s, Account: a})
//	watch, err := node.Coordinate(actors.Coordination{Nodes: 1, Deadline: 60 * time.Second})
//	err = watch.Gather(ctx)               // returns at once when there is one node
//	err = node.Send(plan.Trainer, machine.Tick{Now: now}) // the first event sets the trainer going
//	...                                   // Observer.Stop is called when the trainer ends the run
//	err = watch.Shutdown(ctx, "")
//	err = node.Close(ctx)                 // then close streams and devices
//
// A run over N processes: the coordinator is node 0, starts a [Server] first and says what the others
// get to hear:
//
//	server, err := actors.StartServer(actors.ServerOptions{Job: name, Token: token, Listen: "127.0.0.1:0"})
//	node, err := actors.NewNode(actors.Options{..., Server: server})
//	... Spawn ...
//	c, err := node.Coordinate(actors.Coordination{Nodes: 4, Welcome: actors.Welcome{Job: yaml, ...}, Progress: print})
//	err = c.Gather(ctx)                   // "3/4 nodes joined; waiting for node 2 since 12 s"
//
// and every other node joins it by the address of its server:
//
//	server, err := actors.StartServer(actors.ServerOptions{Job: name, Token: token, Listen: "127.0.0.1:0", Join: address})
//	member, err := actors.Join(ctx, server, actors.Hello{Node: 2, Name: "b", Version: version})
//	... member.Welcome() says what to build: job, options, placement, fingerprint of the plan ...
//	node, err := actors.NewNode(actors.Options{Index: member.Index(), ..., Server: server})
//	... Spawn ...
//	err = member.Ready(ctx, node, fingerprint) // returns when everybody is ready
//	err = member.Wait(ctx)                // nil after an orderly shutdown; an error when the coordinator is gone
//	err = node.Close(ctx)
//	member.Leave(err); server.Close()
package actors
