BEGIN TRANSACTION;
CREATE TABLE message_store (
	id INTEGER NOT NULL, 
	session_id TEXT, 
	message TEXT, 
	PRIMARY KEY (id)
);
INSERT INTO "message_store" VALUES(1,'hike','{"type": "system", "data": {"content": "You are a guide.", "additional_kwargs": {}, "response_metadata": {}, "type": "system", "name": null, "id": null}}');
INSERT INTO "message_store" VALUES(2,'hike','{"type": "human", "data": {"content": "Which hut is next?", "additional_kwargs": {}, "response_metadata": {}, "type": "human", "name": "ada", "id": null}}');
INSERT INTO "message_store" VALUES(3,'hike','{"type": "ai", "data": {"content": "", "additional_kwargs": {}, "response_metadata": {"model_name": "some-model"}, "type": "ai", "name": null, "id": "run-1", "tool_calls": [{"name": "find_hut", "args": {"km": 12}, "id": "c1", "type": "tool_call"}], "invalid_tool_calls": [], "usage_metadata": {"input_tokens": 40, "output_tokens": 9, "total_tokens": 49, "input_token_details": {"cache_read": 8}}}}');
INSERT INTO "message_store" VALUES(4,'hike','{"type": "tool", "data": {"content": "\u00d8deg\u00e5rd, 4 beds", "additional_kwargs": {}, "response_metadata": {}, "type": "tool", "name": "find_hut", "id": null, "tool_call_id": "c1", "artifact": null, "status": "success"}}');
INSERT INTO "message_store" VALUES(5,'hike','{"type": "ai", "data": {"content": [{"type": "text", "text": "Let me look."}, {"type": "tool_use", "id": "c2", "name": "weather", "input": {}}], "additional_kwargs": {}, "response_metadata": {}, "type": "ai", "name": null, "id": null, "tool_calls": [{"name": "weather", "args": {}, "id": "c2", "type": "tool_call"}], "invalid_tool_calls": [], "usage_metadata": null}}');
INSERT INTO "message_store" VALUES(6,'hike','{"type": "tool", "data": {"content": "no answer", "additional_kwargs": {}, "response_metadata": {}, "type": "tool", "name": null, "id": null, "tool_call_id": "c2", "artifact": null, "status": "error"}}');
INSERT INTO "message_store" VALUES(7,'hike','{"type": "ai", "data": {"content": "The \u00d8deg\u00e5rd hut.", "additional_kwargs": {"refusal": null}, "response_metadata": {}, "type": "ai", "name": null, "id": null, "tool_calls": [], "invalid_tool_calls": [], "usage_metadata": null}}');
INSERT INTO "message_store" VALUES(8,'hike','{"type": "chat", "data": {"content": "Thanks", "additional_kwargs": {}, "response_metadata": {}, "type": "chat", "name": null, "id": null, "role": "user"}}');
INSERT INTO "message_store" VALUES(9,'hike','{"type": "function", "data": {"content": "done", "additional_kwargs": {}, "response_metadata": {}, "type": "function", "name": "log", "id": null}}');
INSERT INTO "message_store" VALUES(10,'other','{"type": "human", "data": {"content": "Hello", "additional_kwargs": {}, "response_metadata": {}, "type": "human", "name": null, "id": null}}');
COMMIT;
