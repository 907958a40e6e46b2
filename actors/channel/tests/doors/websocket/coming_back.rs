//! What a client is told that was cut off, or asks again.

use domain::goal::Goal;

use super::*;

#[tokio::test]
async fn a_repeat_gets_the_first_outcome_and_starts_nothing() {
    let (world, address, _) = open(WebsocketConfig::default()).await;
    let mut first = Client::connect(address).await;
    first.say("c", "hi", "m1").await;
    let message = world.message().await;
    let mut turn = world.play(&message.key, message.turn);
    turn.start().say("Hel");
    let mut second = Client::connect(address).await;
    second.say("c", "hi", "m1").await;
    let accepted = second.event().await;
    assert_eq!((&accepted["state"], &accepted["turn_id"]), (&"duplicate".into(), &message.turn.to_string().into()));
    turn.say("lo").end("Hello").finish(TurnResult::Done, "Hello");
    let events = second.events(4).await;
    assert_eq!(names(&events), ["delta", "stream_end", "turn_end", "goal_status"]);
    assert_eq!(events[1]["text"], "Hello", "the part that was missed comes with the end");
    world.backend.records.lock().unwrap().insert(message.turn, ended(finished(TurnResult::Done, "Hello")));
    let mut third = Client::connect(address).await;
    third.say("c", "hi", "m1").await;
    let events = third.events(3).await;
    assert_eq!(names(&events), ["accepted", "message", "turn_end"]);
    assert_eq!((&events[1]["text"], &events[1]["turn_id"]), (&"Hello".into(), &message.turn.to_string().into()));
    third.say("c", "other", "m1").await;
    assert_eq!(third.event().await["reason"], "message_id_conflict");
    *world.backend.goal.lock().unwrap() = Some(Arc::new(Goal::new("a site")));
    third.send(json!({"type": "attach", "chat_id": "d", "after": format!("{}.1.2", message.turn)})).await;
    let events = third.events(4).await;
    assert_eq!(names(&events), ["attached", "message", "turn_end", "goal_state"]);
    let goal = json!({"active": true, "status": "active", "objective": "a site"});
    assert_eq!((&events[2]["context_window_tokens"], &events[2]["goal_state"]), (&json!(9000), &goal));
    assert_eq!((&events[3]["chat_id"], &events[3]["goal_state"]), (&json!("d"), &goal));
    third.send(json!({"type": "attach", "chat_id": "asleep"})).await;
    third.send(json!({"type": "attach", "chat_id": "e"})).await;
    assert_eq!(names(&third.events(3).await), ["attached", "attached", "goal_state"], "no session is begun for it");
}

#[tokio::test]
async fn a_client_that_comes_back_goes_on_where_it_was() {
    let (world, address, _) = open(WebsocketConfig::default()).await;
    let mut client = Client::connect(address).await;
    client.say("c", "hi", "m1").await;
    let message = world.message().await;
    let mut turn = world.play(&message.key, message.turn);
    turn.start().say("Hel");
    let seen = client.events(3).await.pop().unwrap();
    let cursor = format!("{}.{}.{}", seen["turn_id"].as_str().unwrap(), seen["attempt"], seen["seq"]);
    drop(client);
    turn.say("lo");
    let mut client = Client::connect(address).await;
    client.send(json!({"type": "attach", "chat_id": "c", "after": cursor})).await;
    let events = client.events(3).await;
    assert_eq!(names(&events), ["attached", "delta", "goal_status"]);
    assert_eq!(events[1]["text"], "lo");
    turn.again().say("Hey").end("Hey").finish(TurnResult::Done, "Hey");
    let events = client.events(6).await;
    assert_eq!(names(&events), ["turn_restarted", "goal_status", "delta", "stream_end", "turn_end", "goal_status"]);
    assert_ne!(events[2]["stream_id"], seen["stream_id"]);
}
